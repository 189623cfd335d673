#include "sdpa.h"
#include <inner.h>
