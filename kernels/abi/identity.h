/* What a binary says about itself. The build writes a table of macros after the variant's own source, so that it
 * reports what the preprocessor really held when the code was compiled, not what was asked for.
 *
 * The program hash leaves out the two constants by which builds of one program differ, at_build_id and at_macros, and
 * nothing else: two variants with the same code have different identities and one program. A source that puts something
 * in their place, or reads them, is refused. */
#ifndef AUTOTUNER_IDENTITY_H
#define AUTOTUNER_IDENTITY_H

#include "variant.h"

typedef struct at_identity {
  int32_t abi_version;
  int32_t call_size;    /* sizeof(at_call) as the variant saw it */
  const char *build_id; /* the artifact's digest */
  const char *macros;   /* lines NAME=VALUE */
  const char *signature; /* the device, and a line a tensor: what binding.cpp asks of those that it is given */
  int64_t (*workspace)(const at_call *);
  int (*run)(const at_call *);
} at_identity;

#ifdef __cplusplus
extern "C"
#else
extern
#endif
const at_identity variant_identity;

#endif
