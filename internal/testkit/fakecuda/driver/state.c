/* Counts, faults and the live things of all processes. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_THINGS = 4096 };

/* The file, as readers in other languages see it: all numbers are of 8 bytes. */
struct count { char name[56]; uint64_t n; };
struct thing { uint64_t kind, pid, id, device, bytes, maker, made; };
struct state {
	char magic[8]; /* "fakecuda" */
	uint64_t functions, tallies, things;
	struct count counts[MOST_FUNCTIONS];
	struct count tallied[MOST_TALLIES];
	struct thing list[MOST_THINGS];
};

static const char *const function_names[] = {
#define NAME(name) #name,
	FUNCTIONS(NAME)
};
static const char *const tally_names[] = {TALLIES(NAME)};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct state *state;
static int state_fd = -1;
static pid_t initialized_in; /* 0: not initialized */
static uint64_t calls[MOST_FUNCTIONS]; /* of this process, for faults */
static uint64_t ids;
static int absent, devices = 2, visible[MOST_DEVICES], visible_count;
static uint64_t memory = 1ull << 30;

struct fault { enum function f; uint64_t n; int on; CUresult code; };
static struct fault faults[64];
static int fault_count;

EXPORT void fakecuda_fail(const char *text);

static uint64_t number(const char *name, uint64_t otherwise) {
	const char *text = getenv(name);
	return text != NULL && *text != 0 ? strtoull(text, NULL, 0) : otherwise;
}

static void see_devices(void) {
	const char *text = getenv("CUDA_VISIBLE_DEVICES");
	visible_count = 0;
	if (text == NULL) {
		for (int d = 0; d < devices; d++)
			visible[visible_count++] = d;
		return;
	}
	while (*text != 0 && visible_count < MOST_DEVICES) { /* up to the first that does not exist, as the real one */
		char *end;
		long d = -1;
		if (strncmp(text, "GPU-", 4) == 0) {
			d = strtol(text + 4, &end, 16); /* see cuDeviceGetUuid; what follows does not matter */
			while (*end != 0 && *end != ',')
				end++;
		} else {
			d = strtol(text, &end, 10);
		}
		if (end == text || d < 0 || d >= devices)
			return;
		visible[visible_count++] = (int)d;
		text = *end == ',' ? end + 1 : end;
		if (*end != ',' && *end != 0)
			return;
	}
}

static void open_state(void) {
	const char *path = getenv("FAKECUDA_STATE");
	if (path != NULL && *path != 0)
		state_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (state_fd < 0) {
		state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} else {
		flock(state_fd, LOCK_EX);
		if (ftruncate(state_fd, sizeof *state) != 0)
			abort();
		state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
	}
	if (state == MAP_FAILED)
		abort();
	if (state->magic[0] == 0) {
		state->functions = MOST_FUNCTIONS;
		state->tallies = MOST_TALLIES;
		state->things = MOST_THINGS;
		for (int i = 0; i < MOST_FUNCTIONS; i++)
			strcpy(state->counts[i].name, function_names[i]);
		for (int i = 0; i < MOST_TALLIES; i++)
			strcpy(state->tallied[i].name, tally_names[i]);
		memcpy(state->magic, "fakecuda", 8);
	}
	if (state_fd >= 0)
		flock(state_fd, LOCK_UN);
}

__attribute__((constructor)) static void load(void) {
	devices = (int)number("FAKECUDA_DEVICES", 2);
	if (devices > MOST_DEVICES)
		devices = MOST_DEVICES;
	memory = number("FAKECUDA_MEMORY", 1ull << 30);
	absent = getenv("FAKECUDA_ABSENT") != NULL;
	see_devices();
	fakecuda_fail(getenv("FAKECUDA_FAIL"));
	open_state();
}

/* For tests in one process: sets the faults anew, and counts calls from zero. */
EXPORT void fakecuda_fail(const char *text) {
	fault_count = 0;
	memset(calls, 0, sizeof calls);
	while (text != NULL && *text != 0 && fault_count < 64) {
		char name[64];
		unsigned long long n;
		char rest[16];
		int code, length = 0;
		if (sscanf(text, "%63[^:]:%llu%15[+=]%d%n", name, &n, rest, &code, &length) != 4) {
			fprintf(stderr, "FAKECUDA_FAIL: %s is not NAME:N=CODE\n", text);
			abort();
		}
		int f = 0;
		while (f < MOST_FUNCTIONS && strcmp(function_names[f], name) != 0)
			f++;
		if (f == MOST_FUNCTIONS) {
			fprintf(stderr, "FAKECUDA_FAIL: no function %s\n", name);
			abort();
		}
		faults[fault_count++] = (struct fault){f, n, rest[0] == '+', code};
		text += length;
		if (*text == ',')
			text++;
	}
}

/* For tests in one process: whether there are devices, with the environment as it is now. */
EXPORT void fakecuda_present(int present) {
	absent = !present;
	initialized_in = 0;
	see_devices();
}

EXPORT int fakecuda_state(const char *name, uint64_t *n) {
	for (int i = 0; i < MOST_FUNCTIONS; i++)
		if (strcmp(state->counts[i].name, name) == 0)
			return *n = state->counts[i].n, 1;
	for (int i = 0; i < MOST_TALLIES; i++)
		if (strcmp(state->tallied[i].name, name) == 0)
			return *n = state->tallied[i].n, 1;
	return 0;
}

/* How many things of a kind this process has. */
EXPORT int fakecuda_live(int kind) {
	int n = 0;
	for (int i = 0; i < MOST_THINGS; i++)
		n += state->list[i].kind == (uint64_t)kind && state->list[i].pid == (uint64_t)getpid();
	return n;
}

/* What the file says that FAKECUDA_LOST names: what became of a device, from now on, in this process too. */
static CUresult lost(enum need need) {
	const char *path = getenv("FAKECUDA_LOST");
	FILE *file = path != NULL && *path != 0 && need != NOTHING ? fopen(path, "re") : NULL;
	if (file == NULL)
		return OK;
	char what[16] = "";
	int device = -1;
	int found = fscanf(file, "%15s %d", what, &device);
	fclose(file);
	CUcontext here = current();
	if (found == 2 && (need != CURRENT || here == NULL || here->device != device))
		return OK;
	while (found > 0 && strcmp(what, "hang") == 0)
		pause();
	return found > 0 ? atoi(what) : OK;
}

CUresult enter(enum function f, enum need need) {
	CUresult gone_for_good = lost(need);
	pthread_mutex_lock(&mutex);
	CUresult refusal = OK;
	__atomic_add_fetch(&state->counts[f].n, 1, __ATOMIC_SEQ_CST);
	calls[f]++;
	if (f == F_cuInit && !initialized_in && !absent && visible_count > 0)
		initialized_in = getpid();
	if (initialized_in != 0 && initialized_in != getpid()) {
		tally(T_after_fork, 1);
		refusal = NOT_INITIALIZED;
	} else if (f == F_cuInit && (absent || visible_count == 0)) {
		refusal = NO_DEVICE;
	} else if (need != NOTHING && initialized_in == 0) {
		refusal = NOT_INITIALIZED;
	} else if (need == CURRENT && current() == NULL) {
		tally(T_without_context, 1);
		refusal = INVALID_CONTEXT;
	}
	for (int i = 0; i < fault_count && refusal == OK; i++)
		if (faults[i].f == f && (faults[i].n == calls[f] || (faults[i].on && calls[f] > faults[i].n)))
			refusal = faults[i].code;
	if (refusal == OK)
		refusal = gone_for_good;
	if (refusal != OK)
		pthread_mutex_unlock(&mutex);
	return refusal;
}

void leave(int *unused) {
	(void)unused;
	pthread_mutex_unlock(&mutex);
}

void tally(enum tally t, uint64_t n) { __atomic_add_fetch(&state->tallied[t].n, n, __ATOMIC_SEQ_CST); }

static void lock_things(void) {
	if (state_fd >= 0)
		while (flock(state_fd, LOCK_EX) != 0 && errno == EINTR) {
		}
}

static void unlock_things(void) {
	if (state_fd >= 0)
		flock(state_fd, LOCK_UN);
}

static int gone(uint64_t pid) { return kill((pid_t)pid, 0) != 0 && errno == ESRCH; }

static uint64_t used_locked(int device) {
	uint64_t sum = 0;
	for (int i = 0; i < MOST_THINGS; i++) {
		struct thing *t = &state->list[i];
		int holds = t->kind == ALLOCATION || t->kind == MANAGED || t->kind == ASYNC || t->kind == HANDLE;
		if (holds && t->device == (uint64_t)device && !gone(t->pid))
			sum += t->bytes;
	}
	return sum;
}

uint64_t used_bytes(int device) {
	lock_things();
	uint64_t sum = used_locked(device);
	unlock_things();
	return sum;
}

CUresult live(enum kind kind, int device, uint64_t bytes, uint64_t *id) {
	CUresult result = OUT_OF_MEMORY;
	int holds = kind == ALLOCATION || kind == MANAGED || kind == ASYNC || kind == HANDLE;
	lock_things();
	if (!holds || bytes <= memory - used_locked(device))
		for (int pass = 0; pass < 2 && result != OK; pass++) /* then also the places of what is dead */
			for (int i = 0; i < MOST_THINGS && result != OK; i++)
				if (state->list[i].kind == 0 || (pass == 1 && gone(state->list[i].pid))) {
					*id = ++ids;
					state->list[i] = (struct thing){kind, (uint64_t)getpid(), *id, (uint64_t)device, bytes, 0, 0};
					result = OK;
				}
	unlock_things();
	return result;
}

static struct thing *find(pid_t pid, uint64_t id) {
	for (int i = 0; i < MOST_THINGS; i++)
		if (state->list[i].kind != 0 && state->list[i].pid == (uint64_t)pid && state->list[i].id == id)
			return &state->list[i];
	return NULL;
}

void dead(uint64_t id) {
	lock_things();
	struct thing *t = find(getpid(), id);
	if (t != NULL)
		memset(t, 0, sizeof *t);
	unlock_things();
}

int open_elsewhere(uint64_t id) {
	int n = 0;
	lock_things();
	for (int i = 0; i < MOST_THINGS; i++) {
		struct thing *t = &state->list[i];
		n += t->kind == OPENED && t->maker == (uint64_t)getpid() && t->made == id && !gone(t->pid);
	}
	unlock_things();
	return n;
}

int is_live(pid_t maker, uint64_t made) {
	lock_things();
	int there = find(maker, made) != NULL && !gone((uint64_t)maker);
	unlock_things();
	return there;
}

void opened_from(uint64_t id, pid_t maker, uint64_t made) {
	lock_things();
	struct thing *t = find(getpid(), id);
	t->maker = (uint64_t)maker;
	t->made = made;
	unlock_things();
}

uint64_t device_bytes(void) { return memory; }
int device_count(void) { return visible_count; }
int device_number(CUdevice d) { return visible[d]; }

struct error { CUresult code; const char *name, *text; };
static const struct error errors[] = {
	{OK, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{MAP_FAILED_, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	{PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error *error_of(CUresult code) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code)
			return &errors[i];
	return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
	const struct error *e = error_of(code);
	*name = e != NULL ? e->name : NULL;
	return e != NULL ? OK : INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
	const struct error *e = error_of(code);
	*text = e != NULL ? e->text : NULL;
	return e != NULL ? OK : INVALID_VALUE;
}
