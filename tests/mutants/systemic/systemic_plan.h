/* What the two sides of the systemic mutants on CUDA agree on: systemic.cu and systemic_host.cpp. Plain C. */
#ifndef SYSTEMIC_PLAN_H
#define SYSTEMIC_PLAN_H

/* The slots of at_geometry.host. */
enum {
  SYSTEMIC_FAULT,     /* what the host side does wrong, see below */
  SYSTEMIC_WORKSPACE, /* bytes of workspace that it asks for */
  SYSTEMIC_DTYPE,     /* DTYPE */
  SYSTEMIC_CAUSAL     /* CAUSAL */
};

enum {
  HOST_IS_RIGHT,
  HOST_RETURNS_STATUS_7,
  HOST_REFUSES_EVERYTHING,
  HOST_WRITES_NOTHING,
  HOST_IGNORES_LAUNCH_ERROR,
  HOST_ASKS_FOR_ONE_TERABYTE,
  HOST_USES_PRIVATE_STREAM,
  HOST_USES_LEGACY_STREAM,
  HOST_FORKS_WITHOUT_JOIN,
  HOST_WAITS_FOR_STREAM,
  HOST_CACHES_BY_POINTER,
  HOST_CACHES_BY_DIMS,
  HOST_CALLS_SDPA,
  HOST_LEAKS_DEVICE_MEMORY,
  HOST_LEAKS_HOST_MEMORY,
  HOST_LEAKS_PINNED_MEMORY
};

#endif
