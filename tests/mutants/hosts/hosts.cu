// The kernel of all.
#include "../systemic/systemic.cu"
