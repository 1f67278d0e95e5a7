package rest

import (
	"errors"
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// Infer serves POST …/infer, of the latest version if version is infer.LatestVersion. An
// error has not been replied; the reply has the type that goes with it.
func (h *Endpoints) Infer(w *http1.Reply, r *http1.Request, model string, version int64) error {
	found, err := h.core.Target(model, version)
	if err != nil {
		return err
	}
	if found.Info().Decoupled() {
		return infer.Errorf(infer.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	q := h.inferences.NewRequest(found, model, version)
	defer q.Release()
	err = h.infer(q, w, r)
	q.Reuse()
	return err
}

// infer takes a request from its body to its reply. The content type says how far it has
// come when it fails, as Triton's does.
func (h *Endpoints) infer(q *inference.Request, w *http1.Reply, r *http1.Request) error {
	if err := q.ReadHead(r); err != nil {
		w.OfferCodings = errors.Is(err, inference.ErrCoding)
		return err
	}
	w.ContentType = typeJSON
	if err := q.Decode(r); err != nil {
		return err
	}
	if err := h.execute(q, r); err != nil {
		return err
	}
	w.ContentType = typePlain
	head, blobs, err := q.Encode()
	if err != nil {
		return err
	}
	w.ContentType = typeJSON
	if len(blobs) > 0 {
		h.cfg.Framing.MarkBinary(w, len(head))
	}
	if coding := r.AcceptedCoding(); coding != http1.Identity && h.cfg.Framing.BinaryType == "" {
		if packed, ok := q.Compress(coding, head, blobs); ok {
			w.Coding = coding
			w.Send(http.StatusOK, packed)
			return nil
		}
	}
	w.Send(http.StatusOK, head, blobs...)
	return nil
}

// execute has a request executed and looks meanwhile whether its client leaves.
func (h *Endpoints) execute(q *inference.Request, r *http1.Request) error {
	r.Watch()
	defer r.Unwatch()
	return q.Infer(r.Context(), h.core)
}
