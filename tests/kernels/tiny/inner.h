#if MODE_HALF_UP
#define FACTOR (SIZE + 0.5f)
#else
#define FACTOR float(SIZE)
#endif
