/* pingpong WAY SECONDS: how fast two processes without a runtime tell each other something and wait for the answer.
 *
 *   pipes    each writes a byte into a pipe and blocks in read(2)
 *   futex    each stores a number in shared memory, wakes the other and blocks in futex(2)
 *   yields   each stores a number in shared memory, and looks for the other's between sched_yield(2)
 *
 * It prints, of round trips: the median and the 99th percentile in ns, the processor time of both processes for
 * each, ns, and how often the kernel switched between them for each, in thousandths.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIPES, FUTEX, YIELDS };

/* One process writes a side and the other reads it: each word has a cache line of its own. */
struct side {
	_Alignas(64) atomic_uint number;
	int pipe[2];
};

static int way;

static long long nanoseconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void post(struct side *s, unsigned number)
{
	if (way == PIPES) {
		if (write(s->pipe[1], "", 1) != 1)
			_exit(1);
		return;
	}
	/* A full barrier, as the waiter has one between its last look and its sleep. */
	atomic_store(&s->number, number);
	if (way == FUTEX)
		syscall(SYS_futex, &s->number, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await(struct side *s, unsigned number)
{
	char byte;
	unsigned seen;

	switch (way) {
	case PIPES:
		if (read(s->pipe[0], &byte, 1) != 1)
			_exit(1);
		return;
	case FUTEX:
		while ((seen = atomic_load(&s->number)) != number)
			syscall(SYS_futex, &s->number, FUTEX_WAIT, seen, NULL, NULL, 0);
		return;
	default:
		while (atomic_load(&s->number) != number)
			sched_yield();
	}
}

static int compare(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	return (x > y) - (x < y);
}

static long long switches(int who)
{
	struct rusage r;
	getrusage(who, &r);
	return r.ru_nvcsw + r.ru_nivcsw;
}

int main(int argc, char **argv)
{
	enum { MOST = 8 << 20 };
	const char *ways[] = {"pipes", "futex", "yields"};

	if (argc != 3)
		return 2;
	for (way = 0; way < 3 && strcmp(ways[way], argv[1]); way++)
		;
	struct side *sides = mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned *each = malloc(MOST * sizeof *each);
	if (way == 3 || sides == MAP_FAILED || !each || pipe(sides[0].pipe) || pipe(sides[1].pipe))
		return 2;
	pid_t child = fork();
	if (child < 0)
		return 2;
	if (child == 0)
		for (unsigned number = 1;; number++) {
			await(&sides[0], number);
			post(&sides[1], number);
		}
	long long begin = nanoseconds(CLOCK_MONOTONIC), end = begin + (long long)(atof(argv[2]) * 1e9);
	long long cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID), switched = switches(RUSAGE_SELF), last = begin;
	int n = 0;
	for (unsigned number = 1; last < end && n < MOST; number++) {
		post(&sides[0], number);
		await(&sides[1], number);
		long long now = nanoseconds(CLOCK_MONOTONIC);
		each[n++] = now - last;
		last = now;
	}
	cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	switched = switches(RUSAGE_SELF) - switched;
	kill(child, SIGKILL);
	struct rusage used;
	if (n == 0 || wait4(child, NULL, 0, &used) != child)
		return 1;
	cpu += (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
	switched += used.ru_nvcsw + used.ru_nivcsw;
	qsort(each, n, sizeof *each, compare);
	printf("%u %u %lld %lld\n", each[n / 2], each[n - 1 - n / 100], cpu / n, 1000 * switched / n);
	return 0;
}
