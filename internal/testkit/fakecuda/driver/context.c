/* Devices, contexts, streams and events. */
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct context contexts[MOST_DEVICES];

enum { DEEPEST = 16 };
static __thread CUcontext stack[DEEPEST];
static __thread int depth;

CUcontext current(void) {
	CUcontext c = depth > 0 ? stack[depth - 1] : NULL;
	return c != NULL && c->retained > 0 ? c : NULL;
}

/* An operation that waits in its stream. */
struct operation { struct operation *next; void (*run)(void *); void *what; };

struct stream {
	struct stream *next; /* of all streams */
	struct context *context;
	int blocking; /* it waits for the legacy default stream, and that for it */
	uint64_t id;
	struct operation *first, **last;
};

static struct stream *streams;

struct event {
	struct event *next;
	uint64_t id;
	struct stream *recorded; /* in which it waits; NULL: it has come */
};

static struct event *events;

static struct stream *add_stream(struct context *c, int blocking) {
	struct stream *s = calloc(1, sizeof *s);
	s->context = c;
	s->blocking = blocking;
	s->last = &s->first;
	s->next = streams;
	return streams = s;
}

static struct stream *null_stream(struct context *c) {
	if (c->null == NULL)
		c->null = add_stream(c, 0);
	return c->null;
}

struct stream *stream_of(CUstream handle, CUresult *result) {
	*result = OK;
	if ((uintptr_t)handle <= 2)
		return null_stream(current());
	for (struct stream *s = streams; s != NULL; s = s->next)
		if (s == handle)
			return s;
	*result = INVALID_HANDLE;
	return NULL;
}

void flush(struct stream *s) {
	while (s->first != NULL) {
		struct operation *o = s->first;
		s->first = o->next;
		if (s->first == NULL)
			s->last = &s->first;
		o->run(o->what);
		free(o->what);
		free(o);
	}
}

void flush_all(struct context *c) {
	for (struct stream *s = streams; s != NULL; s = s->next)
		if (s->context == c)
			flush(s);
}

void flush_legacy(struct context *c) {
	for (struct stream *s = streams; s != NULL; s = s->next)
		if (s->context == c && s->blocking)
			flush(s);
	flush(null_stream(c));
}

void later(struct stream *s, void (*run)(void *), void *what, size_t size) {
	/* What it is ordered behind in other streams is done now, which is early enough. */
	if (s == s->context->null)
		flush_legacy(s->context);
	else if (s->blocking)
		flush(null_stream(s->context));
	struct operation *o = calloc(1, sizeof *o);
	o->run = run;
	o->what = malloc(size);
	memcpy(o->what, what, size);
	*s->last = o;
	s->last = &o->next;
}

/* Devices. */

EXPORT CUresult cuInit(unsigned flags) {
	const char *how = getenv("FAKECUDA_INIT");
	if (how != NULL && strcmp(how, "die") == 0)
		raise(SIGKILL);
	while (how != NULL && strcmp(how, "hang") == 0)
		pause();
	ENTER(cuInit, NOTHING);
	return flags == 0 ? OK : INVALID_VALUE;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
	ENTER(cuDriverGetVersion, NOTHING);
	*version = 13000;
	return OK;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
	ENTER(cuDeviceGetCount, INIT);
	*count = device_count();
	return OK;
}

#define DEVICE(d) if ((d) < 0 || (d) >= device_count()) return INVALID_DEVICE

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	ENTER(cuDeviceGet, INIT);
	DEVICE(ordinal);
	*device = ordinal;
	return OK;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice d) {
	ENTER(cuDeviceGetName, INIT);
	DEVICE(d);
	snprintf(name, (size_t)length, "Fake Device %d", device_number(d));
	return OK;
}

static void uuid_of(unsigned char *uuid, CUdevice d) {
	memset(uuid, 0, 16);
	uuid[3] = (unsigned char)device_number(d); /* GPU-0000000d-0000-… */
	uuid[15] = 1;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice d) {
	ENTER(cuDeviceGetUuid, INIT);
	DEVICE(d);
	uuid_of(uuid, d);
	return OK;
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice d) {
	ENTER(cuDeviceGetUuid_v2, INIT);
	DEVICE(d);
	uuid_of(uuid, d);
	return OK;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice d) {
	ENTER(cuDeviceGetPCIBusId, INIT);
	DEVICE(d);
	snprintf(text, (size_t)length, "0000:%02X:00.0", device_number(d) + 1);
	return OK;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
	ENTER(cuDeviceTotalMem_v2, INIT);
	DEVICE(d);
	*bytes = device_bytes();
	return OK;
}

static int is_old(int number) {
	const char *text = getenv("FAKECUDA_OLD");
	return text != NULL && atoi(text) == number;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
	ENTER(cuDeviceGetAttribute, INIT);
	DEVICE(d);
	switch (attribute) {
	case 41:  /* unified addressing */
	case 102: /* virtual memory management */
	case 103: /* handles that are file descriptors */
	case 115: /* memory pools */
		*value = 1;
		break;
	case 16: /* multiprocessors */
		*value = 4;
		break;
	case 75: /* compute capability */
		*value = is_old(device_number(d)) ? 5 : 9;
		break;
	case 76:
		*value = is_old(device_number(d)) ? 2 : 0;
		break;
	default:
		*value = 0;
	}
	return OK;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
	ENTER(cuDeviceCanAccessPeer, INIT);
	DEVICE(d);
	DEVICE(peer);
	*can = d != peer;
	return OK;
}

/* Contexts: the primary ones alone. */

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice d) {
	ENTER(cuDevicePrimaryCtxRetain, INIT);
	DEVICE(d);
	struct context *c = &contexts[d];
	c->device = d;
	if (c->retained == 0 && live(CONTEXT, d, 0, &c->id) != OK)
		return OUT_OF_MEMORY;
	c->retained++;
	*context = c;
	return OK;
}

static void end_context(struct context *c) {
	for (struct range **at = &ranges; *at != NULL;) {
		struct range *r = *at;
		if (r->device == c->device && (r->kind == ALLOCATION || r->kind == ASYNC || r->kind == MANAGED))
			remove_range(r);
		else
			at = &r->next;
	}
	for (struct stream **at = &streams; *at != NULL;) {
		struct stream *s = *at;
		if (s->context == c) {
			flush(s);
			if (s->id != 0)
				dead(s->id);
			*at = s->next;
			free(s);
		} else {
			at = &s->next;
		}
	}
	c->null = NULL;
	c->retained = 0;
	dead(c->id);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	ENTER(cuDevicePrimaryCtxRelease_v2, INIT);
	DEVICE(d);
	if (contexts[d].retained == 0)
		return INVALID_CONTEXT;
	if (--contexts[d].retained == 0)
		end_context(&contexts[d]);
	return OK;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) {
	ENTER(cuDevicePrimaryCtxReset_v2, INIT);
	DEVICE(d);
	if (contexts[d].retained > 0)
		end_context(&contexts[d]);
	return OK;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
	ENTER(cuDevicePrimaryCtxGetState, INIT);
	DEVICE(d);
	*flags = 0;
	*active = contexts[d].retained > 0;
	return OK;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
	ENTER(cuCtxPushCurrent_v2, INIT);
	if (context == NULL || context->retained == 0)
		return INVALID_CONTEXT;
	if (depth == DEEPEST)
		return INVALID_VALUE;
	stack[depth++] = context;
	return OK;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
	ENTER(cuCtxPopCurrent_v2, INIT);
	if (depth == 0)
		return INVALID_CONTEXT;
	depth--;
	if (context != NULL)
		*context = stack[depth];
	return OK;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
	ENTER(cuCtxGetCurrent, INIT);
	*context = current();
	return OK;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
	ENTER(cuCtxSetCurrent, INIT);
	if (context == NULL) {
		depth -= depth > 0;
		return OK;
	}
	if (context->retained == 0)
		return INVALID_CONTEXT;
	if (depth == 0)
		depth = 1;
	stack[depth - 1] = context;
	return OK;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
	ENTER(cuCtxGetDevice, CURRENT);
	*d = current()->device;
	return OK;
}

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
	ENTER(cuCtxGetId, INIT);
	if (context == NULL || context->retained == 0)
		return INVALID_CONTEXT;
	*id = context->id;
	return OK;
}

EXPORT CUresult cuCtxSynchronize(void) {
	ENTER(cuCtxSynchronize, CURRENT);
	flush_all(current());
	return OK;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	ENTER(cuCtxEnablePeerAccess, CURRENT);
	if (flags != 0)
		return INVALID_VALUE;
	if (peer == NULL || peer->retained == 0 || peer == current())
		return INVALID_CONTEXT;
	return OK;
}

/* Streams. */

static CUresult make_stream(CUstream *stream, unsigned flags) {
	uint64_t id;
	if (flags > 1)
		return INVALID_VALUE;
	if (live(STREAM, current()->device, 0, &id) != OK)
		return OUT_OF_MEMORY;
	*stream = add_stream(current(), flags == 0);
	(*stream)->id = id;
	return OK;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
	ENTER(cuStreamCreate, CURRENT);
	return make_stream(stream, flags);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
	ENTER(cuStreamCreateWithPriority, CURRENT);
	(void)priority;
	return make_stream(stream, flags);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
	ENTER(cuStreamDestroy_v2, INIT);
	for (struct stream **at = &streams; *at != NULL; at = &(*at)->next)
		if (*at == stream && stream->id != 0) {
			flush(stream);
			for (struct event *e = events; e != NULL; e = e->next)
				if (e->recorded == stream)
					e->recorded = NULL;
			*at = stream->next;
			dead(stream->id);
			free(stream);
			return OK;
		}
	return INVALID_HANDLE;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
	ENTER(cuStreamSynchronize, CURRENT);
	CUresult result;
	struct stream *s = stream_of(stream, &result);
	if (s == NULL)
		return result;
	if (s == s->context->null)
		flush_legacy(s->context);
	else
		flush(s);
	return OK;
}

EXPORT CUresult cuStreamQuery(CUstream stream) {
	ENTER(cuStreamQuery, CURRENT);
	CUresult result;
	struct stream *s = stream_of(stream, &result);
	if (s == NULL)
		return result;
	if (s->first == NULL)
		return OK;
	flush(s); /* by the next time it is done */
	return NOT_READY;
}

/* Events. */

static struct event *event_of(CUevent handle) {
	for (struct event *e = events; e != NULL; e = e->next)
		if (e == handle)
			return e;
	return NULL;
}

static void await(struct event *e) {
	if (e->recorded != NULL)
		flush(e->recorded);
	e->recorded = NULL;
}

static void run_wait(void *what) {
	struct event *e = event_of(*(CUevent *)what);
	if (e != NULL)
		await(e);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
	ENTER(cuEventCreate, CURRENT);
	(void)flags;
	struct event *e = calloc(1, sizeof *e);
	if (live(EVENT, current()->device, 0, &e->id) != OK)
		return OUT_OF_MEMORY;
	e->next = events;
	*event = events = e;
	return OK;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
	ENTER(cuEventRecord, CURRENT);
	CUresult result;
	struct event *e = event_of(event);
	struct stream *s = stream_of(stream, &result);
	if (e == NULL || s == NULL)
		return INVALID_HANDLE;
	if (s == s->context->null)
		flush_legacy(s->context);
	e->recorded = s;
	return OK;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
	ENTER(cuStreamWaitEvent, CURRENT);
	(void)flags;
	CUresult result;
	struct event *e = event_of(event);
	struct stream *s = stream_of(stream, &result);
	if (e == NULL || s == NULL)
		return INVALID_HANDLE;
	if (e->recorded != NULL && e->recorded != s)
		later(s, run_wait, &e, sizeof e);
	return OK;
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
	ENTER(cuEventSynchronize, INIT);
	struct event *e = event_of(event);
	if (e == NULL)
		return INVALID_HANDLE;
	await(e);
	return OK;
}

EXPORT CUresult cuEventQuery(CUevent event) {
	ENTER(cuEventQuery, INIT);
	struct event *e = event_of(event);
	if (e == NULL)
		return INVALID_HANDLE;
	if (e->recorded == NULL || e->recorded->first == NULL)
		return OK;
	await(e);
	return NOT_READY;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
	ENTER(cuEventDestroy_v2, INIT);
	for (struct event **at = &events; *at != NULL; at = &(*at)->next)
		if (*at == event) {
			await(event); /* streams that wait for it go on */
			*at = event->next;
			dead(event->id);
			free(event);
			return OK;
		}
	return INVALID_HANDLE;
}
