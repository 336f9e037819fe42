/* libcuda.so.1 in small, for tests/device/holder.py: what it allocates is written to $SMALL_NVML as `hold PID:BYTES`,
   where small_nvml.c finds it for as long as the process lives.                                                         */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = NULL; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *place, size_t size) {
    FILE *f = fopen(getenv("SMALL_NVML"), "a");
    if (!f) return 2;
    fprintf(f, "hold %d:%zu\n", getpid(), size);
    return fclose(f) ? 2 : 0;
}
int cuMemsetD8_v2(unsigned long long place, unsigned char value, size_t size) { return 0; }
int cuCtxSynchronize(void) { usleep(1000); return 0; }
