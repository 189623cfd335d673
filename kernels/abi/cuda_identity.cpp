/* What a CUDA variant says it is, in the words of identity.h, read from its cubin when the library is loaded: an object of
 * its own, beside the host side, in which nothing may run then. */
#include "cuda_host.h"

extern "C" const at_identity variant_identity = {at::geometry().abi_version, (int32_t)sizeof(at_call),
                                                 at::cubin_text("at_build_id"), at::cubin_text("at_macros"),
                                                 at::cubin_text("at_signature"), variant_workspace, variant_run};
