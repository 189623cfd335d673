#include <stdlib.h>
#include <string.h>
static const char *names[] = {"Old One", "New One", "Part of One"};
int cuInit(unsigned flags) { return getenv("BROKEN_DRIVER") ? 999 : 0; }
int cuDeviceGetCount(int *count) { const char *seen = getenv("DEVICES_SEEN"); *count = atoi(seen); return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) {
    *value = what == 75 ? 8 + device : what == 76 ? 0 : what == 16 ? 100 + device : what == 38 ? 1 << 20 : -1;
    return 0;
}
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, names[device], size); return 0; }
int cuDriverGetVersion(int *version) { *version = 13010; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0x11 * (device + 1), 16); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, device == 2 ? 0xab : 0x11 * (device + 1), 16);
    return 0;
}
