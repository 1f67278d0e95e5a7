/* An NVML without a device. It finds a device by the UUID that the fake driver has for it, or by its place on the bus.
 *
 * FAKENVML_CONTROL  a file that is read before power and energy: "die" ends the process, "hang" stops it, "silent"
 *                   refuses them
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DEVICES = 16 };

static int ready, handles[DEVICES];
static unsigned long long energy[DEVICES];

int nvmlInit_v2(void) {
	ready = 1;
	return SUCCESS;
}

const char *nvmlErrorString(int result) { return result == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
	unsigned n;
	if (!ready)
		return UNINITIALIZED;
	if (sscanf(uuid, "GPU-%8x-0000-0000-0000-000000000001", &n) != 1 || n >= DEVICES)
		return NOT_FOUND;
	handles[n] = (int)n;
	*handle = &handles[n];
	return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle) {
	unsigned n;
	if (!ready)
		return UNINITIALIZED;
	if (sscanf(bus, "0000:%2X:00.0", &n) != 1 || n == 0 || n > DEVICES)
		return NOT_FOUND;
	handles[n - 1] = (int)n - 1;
	*handle = &handles[n - 1];
	return SUCCESS;
}

static int of(void *handle) { return handle ? *(int *)handle : -1; }

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates) {
	if (of(handle) < 0)
		return INVALID_ARGUMENT;
	rates->gpu = 25 + (unsigned)of(handle);
	rates->memory = 1;
	return SUCCESS;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *m) {
	if (of(handle) < 0 || m->version != (sizeof *m | 2u << 24))
		return INVALID_ARGUMENT;
	m->total = (unsigned long long)(of(handle) + 1) << 30;
	m->reserved = 1 << 20;
	m->used = 100 << 20;
	m->free = m->total - m->used - m->reserved;
	return SUCCESS;
}

static int silent(void) {
	char word[16] = "";
	const char *path = getenv("FAKENVML_CONTROL");
	FILE *file = path ? fopen(path, "r") : NULL;
	if (!file)
		return 0;
	if (fscanf(file, "%15s", word) != 1)
		word[0] = 0;
	fclose(file);
	if (strcmp(word, "die") == 0)
		raise(SIGKILL);
	while (strcmp(word, "hang") == 0)
		pause();
	return strcmp(word, "silent") == 0;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
	if (silent())
		return NOT_SUPPORTED;
	*milliwatts = 70500 + (unsigned)of(handle);
	return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) {
	(void)handle;
	*milliwatts = 700000;
	return SUCCESS;
}

/* Two joules more with each reading. */
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
	if (silent())
		return NOT_SUPPORTED;
	energy[of(handle)] += 2000;
	*millijoules = 1000000 + energy[of(handle)];
	return SUCCESS;
}
