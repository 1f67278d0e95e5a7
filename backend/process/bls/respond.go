package bls

import (
	"errors"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// respond sends INFER_RESPONSE and releases the response. A response that cannot be sent is
// replaced by an error that can. An error ends the life; the result is nil if the life has already
// ended.
func (b *Requests) respond(number uint64, hint uint32, r *infer.Response) error {
	defer r.Release()
	err := b.tryRespond(number, hint, r)
	if refused := frames.Refusal(err); refused != nil {
		failed := infer.ErrorResponse(refused)
		failed.Final = r.Final
		err = b.tryRespond(number, hint, failed)
	}
	if refused := frames.Refusal(err); refused != nil { // not even the text, if it is long
		failed := infer.ErrorResponse(infer.Errorf(infer.Internal, "An error occurred while performing BLS request."))
		failed.Final = r.Final
		err = b.tryRespond(number, hint, failed)
	}
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}

func (b *Requests) tryRespond(number uint64, hint uint32, r *infer.Response) error {
	for i := range r.Parameters {
		if r.Err == nil && r.Parameters[i].Kind == infer.DoubleParameter {
			return infer.Errorf(infer.InvalidArg, "Unsupported parameter type for parameter '%s'.", r.Parameters[i].Name)
		}
	}
	p, err := b.Encoder.Prepare(r)
	if err != nil {
		return err
	}
	defer p.Release()
	p.Hint = hint
	b.Encoder.Lock()
	defer b.Encoder.Unlock()
	return p.Send(number)
}
