/* What the two sides of the mutants that cheat the clock on CUDA agree on: clock.cu and clock_host.cpp. Plain C. */
#ifndef CLOCK_PLAN_H
#define CLOCK_PLAN_H

/* The slots of at_geometry.host. */
enum {
  CLOCK_CHEAT, /* what the host side does, see below */
  CLOCK_KEPT   /* bytes that the device code keeps for each block in memory which the host side gives it */
};

enum {
  HOST_IS_HONEST,
  HOST_GIVES_WORKSPACE,
  HOST_GIVES_ITS_OWN_MEMORY,
  HOST_LAUNCHES_TWICE_THE_BLOCKS,
  HOST_LAUNCHES_HALF_THE_BLOCKS_AGAIN,
  HOST_LAUNCHES_NOTHING_AGAIN,
  HOST_LAUNCHES_NOTHING_AGAIN_WHEN_TIMED,
  HOST_LAUNCHES_NOTHING_AGAIN_IN_A_RACE,
  HOST_WORKS_ON_ANOTHER_STREAM,
  HOST_OVERLAPS_FORWARDS,
  HOST_BURNS,
  HOST_PATCHES_THE_CLOCK,
  HOST_LOOKS_FOR_FREED_MEMORY
};

#define CLOCK_MOST_BLOCKS 1024 /* more blocks than this are computed honestly */

/* Where in freed memory an answer may lie. */
#define CLOCK_MOST_PLACES 256
typedef struct {
  unsigned long long bytes; /* of an answer that has room there */
  unsigned long long count;
  unsigned long long places[CLOCK_MOST_PLACES]; /* addresses; and 1 where the answer would be one of doubles */
} clock_table;

#endif
