package rest

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// serveRegionStatus serves GET …/status of one kind of shared memory.
func (h *Endpoints) serveRegionStatus(w *http1.Reply, _ *http1.Request, t target) error {
	list, err := h.parts.Regions.Status(t.kind, t.region)
	if err != nil {
		return err
	}
	n := len("[]")
	for _, one := range list {
		n += memberBytes + jsontext.TextBytes(one.Name) + jsontext.TextBytes(one.Key)
	}
	return SendJSON(w, n, func(b []byte) []byte { return appendRegions(b, list) })
}

// appendRegions appends the JSON of a list of regions.
//
// bound: the caller has room
func appendRegions(b []byte, list []clientshm.Status) []byte {
	b = append(b, '[')
	for i, one := range list {
		b = jsontext.AppendString(append(appendComma(b, i), `{"name":`...), one.Name)
		if one.Kind == clientshm.CUDA {
			b = strconv.AppendUint(append(b, `,"device_id":`...), one.Device, 10)
		} else {
			b = jsontext.AppendString(append(b, `,"key":`...), one.Key)
			b = strconv.AppendUint(append(b, `,"offset":`...), one.Offset, 10)
		}
		b = strconv.AppendUint(append(b, `,"byte_size":`...), one.Size, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// serveRegionRegister serves POST …/register of one kind.
func (h *Endpoints) serveRegionRegister(w *http1.Reply, r *http1.Request, t target) error {
	if err := h.parts.Regions.CheckEnabled(); err != nil {
		return err
	}
	if t.region == "" {
		return infer.Errorf(infer.InvalidArg, "'region name' is necessary to register %s shared memory region", t.kind)
	}
	return h.bodies.Small(r, func(text []byte, c *budget.Charge) error {
		doc, err := body.Parse(c, new(jsontext.Scanner), text)
		if err != nil {
			return err
		}
		if err := h.registerRegion(r.Context(), t, doc.Root()); err != nil {
			return err
		}
		w.Send(http.StatusOK, nil)
		return nil
	})
}

func (h *Endpoints) registerRegion(ctx context.Context, t target, v jsontext.Value) error {
	if t.kind == clientshm.CUDA {
		device, handle, size, err := readHandle(v)
		if err != nil {
			return err
		}
		return h.parts.Regions.RegisterCUDA(ctx, t.region, device, handle, size)
	}
	if err := checkMembers(v, "key", "byte_size"); err != nil {
		return err
	}
	key, err := v.Member("key").Text()
	if err != nil {
		return err
	}
	offset := uint64(0)
	if m := v.Member("offset"); m.Exists() {
		if offset, err = m.Uint(); err != nil {
			return err
		}
	}
	size, err := v.Member("byte_size").Uint()
	if err != nil {
		return err
	}
	return h.parts.Regions.RegisterSystem(t.region, key.String(), offset, size) // bound: a small body
}

// checkMembers rejects the first member that a registration lacks.
func checkMembers(v jsontext.Value, names ...string) error {
	for _, name := range names {
		if !v.Member(name).Exists() {
			return infer.Errorf(infer.InvalidArg, "Shared memory register request has no '%s' field", name)
		}
	}
	return nil
}

// handleBytes is the size of a cudaIpcMemHandle_t.
const handleBytes = 64

// readHandle reads the description of a region on a device.
func readHandle(v jsontext.Value) (device uint64, handle []byte, size uint64, err error) {
	if err := checkMembers(v, "raw_handle", "device_id", "byte_size"); err != nil {
		return 0, nil, 0, err
	}
	b64 := v.Member("raw_handle").Member("b64")
	if !b64.Exists() {
		return 0, nil, 0, infer.Errorf(infer.Internal, "attempt to access non-existing object member 'b64'")
	}
	text, err := b64.Text()
	if err != nil {
		return 0, nil, 0, err
	}
	if size, err = v.Member("byte_size").Uint(); err != nil {
		return 0, nil, 0, err
	}
	if device, err = v.Member("device_id").Uint(); err != nil {
		return 0, nil, 0, err
	}
	if handle, err = base64.StdEncoding.DecodeString(text.String()); err != nil || len(handle) != handleBytes { // bound: a small body
		return 0, nil, 0, infer.Errorf(infer.InvalidArg, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
	}
	return device, handle, size, nil
}

// serveRegionUnregister serves POST …/unregister of one kind. It succeeds for unknown regions:
// clients begin with it.
func (h *Endpoints) serveRegionUnregister(w *http1.Reply, _ *http1.Request, t target) error {
	if err := h.parts.Regions.Unregister(t.kind, t.region); err != nil {
		return err
	}
	w.Send(http.StatusOK, nil)
	return nil
}
