/* libnvidia-ml.so.1 in small, for the real Python binding. State is read at each call from $SMALL_NVML:
     error N                         nvmlInit answers N (9: the driver is not loaded)
     use N                           how busy every GPU is, in percent (42); below 0: it cannot say
     shift N                         processes have other numbers, as outside of a container
     mute 1                          no processes are named
     gpu UUID TOTAL USED [PID:BYTES …]      one line a GPU; with TOTAL 0 it is lost
     hold PID:BYTES                  more of the first GPU, while that process lives                                      */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 8
static struct gpu { int index; char uuid[80], procs[400]; unsigned long long total, used; } gpus[MAX];
static int count, error, ready, use, shift, mute;

static void look(void) {
    char line[600];
    FILE *f = getenv("SMALL_NVML") ? fopen(getenv("SMALL_NVML"), "r") : NULL;
    count = error = shift = mute = 0;
    use = 42;
    while (f && count < MAX && fgets(line, sizeof line, f)) {
        struct gpu *g = &gpus[count];
        unsigned pid;
        unsigned long long bytes;
        if (count && sscanf(line, "hold %u:%llu", &pid, &bytes) == 2) {
            size_t used = strlen(gpus[0].procs);
            if (kill(pid, 0)) continue;
            gpus[0].used += bytes;
            snprintf(gpus[0].procs + used, sizeof gpus[0].procs - used, " %u:%llu", pid, bytes);
            continue;
        }
        g->procs[0] = 0;
        if (sscanf(line, "error %d", &error) == 1 || sscanf(line, "use %d", &use) == 1) continue;
        if (sscanf(line, "shift %d", &shift) == 1 || sscanf(line, "mute %d", &mute) == 1) continue;
        if (sscanf(line, "gpu %79s %llu %llu %399[^\n]", g->uuid, &g->total, &g->used, g->procs) >= 3) g->index = count++;
    }
    if (f) fclose(f);
}

static int text(const char *from, char *to, unsigned size) {
    if (strlen(from) >= size) return 7;
    strcpy(to, from);
    return 0;
}

#define CALL do { look(); if (!ready) return 1; if (error) return error; } while (0)
#define ON(g) do { CALL; if ((g)->index >= count) return 15; } while (0)

int nvmlInitWithFlags(unsigned flags) { look(); if (error) return error; ready = 1; return 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ready = 0; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { CALL; *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **g) { CALL; if (i >= (unsigned)count) return 2; *g = &gpus[i]; return gpus[i].total ? 0 : 15; }
int nvmlDeviceGetUUID(struct gpu *g, char *to, unsigned size) { ON(g); return text(g->uuid, to, size); }
int nvmlDeviceGetName(struct gpu *g, char *to, unsigned size) { ON(g); return text("Small GPU", to, size); }
int nvmlDeviceGetMemoryInfo(struct gpu *g, unsigned long long *m) { ON(g); m[0] = g->total; m[1] = g->total - g->used; m[2] = g->used; return 0; }
int nvmlDeviceGetUtilizationRates(struct gpu *g, unsigned *u) { ON(g); if (use < 0) return 3; u[0] = use; u[1] = 0; return 0; }
int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *c) { ON(g); *c = 30 + use / 2; return 0; }
int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned *mw) { ON(g); *mw = 300123; return 0; }
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *g, unsigned *n, struct process *to) {
    unsigned found = 0, room = *n;
    char copy[400], *at = NULL;
    ON(g);
    strcpy(copy, mute ? "" : g->procs);
    for (char *p = strtok_r(copy, " ", &at); p; p = strtok_r(NULL, " ", &at), found++) {
        struct process one = {0, 0, -1u, -1u};
        sscanf(p, "%u:%llu", &one.pid, &one.used);
        one.pid += shift;
        if (found < room) to[found] = one;
    }
    *n = found;
    return found > room ? 7 : 0;
}
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "error"; }
