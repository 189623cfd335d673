#include <string.h>
extern "C" {
int cuInit(unsigned) { return INIT; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetAttribute(int *value, int number, int) { return *value = number == 75 ? 9 : number == 16 ? 16 : 0, 0; }
int cuDeviceGetName(char *name, int, int) { return strcpy(name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb"), 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetUuid(char *id, int) { return memset(id, 1, 16), 0; }
int cuDeviceGetUuid_v2(char *id, int) { return memset(id, 2, 16), 0; }
}
