/* A stand-in of libcuda.so.1 for those functions that count devices.
 *
 * NEREID_FAKE_CUDA_DEVICES  how many devices there are, 2 if it is not set
 * NEREID_FAKE_CUDA_INIT     what cuInit does: a CUresult that it returns, "hang", or "die"
 * CUDA_VISIBLE_DEVICES      numbers, separated by commas: which are shown, in which order
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, MOST = 16 };

static int ready, count, order[MOST];

static int number(const char *name, int otherwise) {
	const char *text = getenv(name);
	return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
	const char *how = getenv("NEREID_FAKE_CUDA_INIT");
	if (flags != 0)
		return INVALID_VALUE;
	if (how && strcmp(how, "hang") == 0)
		for (;;)
			pause();
	if (how && strcmp(how, "die") == 0)
		raise(SIGKILL);
	if (how && atoi(how))
		return atoi(how);
	int there = number("NEREID_FAKE_CUDA_DEVICES", 2);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	count = 0;
	if (!visible)
		while (count < there && count < MOST) {
			order[count] = count;
			count++;
		}
	/* As the driver does: the first number that is none ends the list. */
	while (visible && *visible && count < MOST) {
		char *end;
		long n = strtol(visible, &end, 10);
		if (end == visible || n < 0 || n >= there)
			break;
		order[count++] = (int)n;
		visible = *end == ',' ? end + 1 : "";
	}
	if (count == 0)
		return NO_DEVICE;
	ready = 1;
	return SUCCESS;
}

int cuDeviceGetCount(int *n) {
	if (!ready)
		return NOT_INITIALIZED;
	*n = count;
	return SUCCESS;
}

int cuDeviceGet(int *device, int index) {
	if (!ready)
		return NOT_INITIALIZED;
	if (index < 0 || index >= count)
		return INVALID_DEVICE;
	*device = index;
	return SUCCESS;
}

static int known(int device) { return device >= 0 && device < count; }

int cuDeviceGetName(char *name, int room, int device) {
	if (!known(device))
		return INVALID_DEVICE;
	snprintf(name, (size_t)room, "Fake GPU %d", order[device]);
	return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
	if (!known(device))
		return INVALID_DEVICE;
	*bytes = (size_t)(order[device] + 1) << 30;
	return SUCCESS;
}

/* The compute capability is 9.0, and 5.2 of device 3. */
int cuDeviceGetAttribute(int *value, int which, int device) {
	if (!known(device))
		return INVALID_DEVICE;
	int old = order[device] == 3;
	if (which == 75)
		*value = old ? 5 : 9;
	else if (which == 76)
		*value = old ? 2 : 0;
	else
		return INVALID_VALUE;
	return SUCCESS;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
	if (!known(device))
		return INVALID_DEVICE;
	memset(uuid, 0xfa, 16);
	uuid[15] = (unsigned char)order[device];
	return SUCCESS;
}

int cuDeviceGetPCIBusId(char *bus, int room, int device) {
	if (!known(device))
		return INVALID_DEVICE;
	snprintf(bus, (size_t)room, "0000:%02x:00.0", order[device] + 1);
	return SUCCESS;
}

int cuGetErrorName(int error, const char **name) {
	if (error != NO_DEVICE)
		return INVALID_VALUE;
	*name = "CUDA_ERROR_NO_DEVICE";
	return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
	if (error != NO_DEVICE)
		return INVALID_VALUE;
	*text = "no CUDA-capable device is detected";
	return SUCCESS;
}
