/* Preloaded into a process: its wall clock is off by as many milliseconds as STEPPED_CLOCK_FILE says at that moment.
 *
 * What counts steadily (CLOCK_MONOTONIC, CLOCK_BOOTTIME) and waiting are the kernel's own, as when somebody really sets
 * the clock. (libfaketime would do, but an absolute clock_nanosleep, which is Python's time.sleep, fails under it.)
 *
 *   cc -shared -fPIC -o stepped_clock.so stepped_clock.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ms;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STEPPED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        offset_ms = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && offset_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + (*offset_ms % 1000) * 1000000;
        now->tv_sec += *offset_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) {
        return -1;
    }
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (into) {
        *into = precise.tv_sec;
    }
    return precise.tv_sec;
}
