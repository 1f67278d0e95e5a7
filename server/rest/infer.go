package rest

import (
	"errors"
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// Infer serves POST …/infer, of the latest version if version is infer.LatestVersion. It returns
// errors that have not been replied; the reply has their content type. The error of a traced
// request is replied here.
func (h *Endpoints) Infer(w *http1.Reply, r *http1.Request, model string, version int64) error {
	found, err := h.parts.Core.Target(model, version)
	if err != nil {
		return err
	}
	if found.Info().Decoupled() {
		return infer.Errorf(infer.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	t := h.sample(model, r)
	defer t.Finish()
	q := h.inferences.NewRequest(found, model, version)
	q.Record(t)
	defer q.Release()
	err = h.infer(q, t, w, r)
	q.Reuse()
	if err != nil && t != nil {
		writeTracedError(w, t, err)
		return nil
	}
	return err
}

// infer takes a request from its body to its reply. As in Triton the content type shows how far a
// failed request has come.
func (h *Endpoints) infer(q *inference.Request, t *trace.Trace, w *http1.Reply, r *http1.Request) error {
	err := read(q, w, r)
	t.Stamp(trace.HTTPReceiveEnd)
	if err != nil {
		return err
	}
	if err := h.execute(q, r); err != nil {
		return err
	}
	w.ContentType = typePlain
	head, blobs, err := q.Encode(r.Context())
	if err != nil {
		return err
	}
	t.Stamp(trace.HTTPSendStart)
	h.send(q, w, r, head, blobs)
	t.Stamp(trace.HTTPSendEnd)
	return nil
}

// read reads the request's headers and body.
func read(q *inference.Request, w *http1.Reply, r *http1.Request) error {
	if err := q.ReadHead(r); err != nil {
		w.OfferCodings = errors.Is(err, inference.ErrCoding)
		return err
	}
	w.ContentType = typeJSON
	return q.Decode(r)
}

// send sends a response: JSON, then binary outputs.
func (h *Endpoints) send(q *inference.Request, w *http1.Reply, r *http1.Request, head []byte, blobs [][]byte) {
	w.ContentType = typeJSON
	if len(blobs) > 0 {
		h.cfg.Framing.MarkBinary(w, len(head))
	}
	if coding := r.AcceptedCoding(); coding != http1.Identity && h.cfg.Framing.BinaryType == "" && worthPacking(r, coding, head, blobs) {
		if packed, ok := q.Compress(coding, head, blobs); ok {
			w.Coding = coding
			w.Send(http.StatusOK, packed)
			return
		}
	}
	w.Send(http.StatusOK, head, blobs...)
}

// packedMin is the shortest reply that is compressed for a client that accepts several codings.
const packedMin = 1 << 10

// worthPacking reports whether a reply should be compressed. Most clients that accept compressed
// replies name all the codings they know, and gain little from small savings. A client that names a
// single coding was configured to: it gets the same reply as from Triton.
func worthPacking(r *http1.Request, coding http1.Coding, head []byte, blobs [][]byte) bool {
	size := len(head)
	for _, blob := range blobs {
		size += len(blob)
	}
	if size >= packedMin {
		return true
	}
	accept, _ := r.Header("Accept-Encoding")
	return accept == coding.String()
}

// execute executes a request and meanwhile watches whether its client disconnects.
func (h *Endpoints) execute(q *inference.Request, r *http1.Request) error {
	r.Watch()
	defer r.Unwatch()
	ctx := r.Context()
	if h.parts.IsReplayKey != nil {
		if key, _ := r.Header(server.ReplayHeader); h.parts.IsReplayKey(key) {
			ctx = server.Replayed(ctx)
		}
	}
	return q.Infer(ctx, h.parts.Core)
}
