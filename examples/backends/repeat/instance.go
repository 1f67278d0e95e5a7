package repeat

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/sdk"
)

// instance sends the responses of each request from a separate goroutine.
type instance struct {
	log        *slog.Logger
	statistics sdk.Statistics
	ctx        context.Context // ends in Close: streams end early then
	stop       context.CancelFunc
	streams    sync.WaitGroup
}

func (i *instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	if len(requests) != 1 {
		// Nothing has been sent or released, so each request gets this error.
		return sdk.Errorf(sdk.Unsupported, "repeat backend does not support batched request execution")
	}
	request := requests[0]
	executing := sdk.Now()
	work, wait, err := read(request)
	// The factory outlives the request and sends the later responses.
	factory := request.Factory()
	if err == nil {
		i.streams.Add(1)
		go func() {
			defer i.streams.Done()
			defer factory.Close()
			i.stream(factory, work)
		}()
		sleep(ctx, wait)
	} else {
		fail(factory, err)
		factory.Close()
	}
	ended := sdk.Now()
	times := sdk.Times{ExecStart: executing, ComputeStart: executing, ComputeEnd: ended, ExecEnd: ended}
	_ = i.statistics.Request(request, err == nil, times)
	_ = i.statistics.Batch(1, times)
	_ = request.Release(sdk.ReleaseAll)
	return nil
}

// Close waits for the streams. If a model is unloaded by force, they have not ended yet, and end
// with an error.
func (i *instance) Close() {
	i.stop()
	i.streams.Wait()
}

// work is a copy of a request's inputs, which are gone when it is released.
type work struct {
	values []byte // of IN
	delays []time.Duration
}

func read(request *sdk.Request) (w work, wait time.Duration, err error) {
	in, err := request.Input("IN")
	if err != nil {
		return w, 0, err
	}
	delay, err := request.Input("DELAY")
	if err != nil {
		return w, 0, err
	}
	waiting, err := request.Input("WAIT")
	if err != nil {
		return w, 0, err
	}
	if !slices.Equal(in.Shape(), delay.Shape()) {
		return w, 0, sdk.Errorf(sdk.InvalidArg, "expected IN and DELAY shape to match, got %s and %s", sdk.ShapeString(in.Shape()), sdk.ShapeString(delay.Shape()))
	}
	if len(waiting.Data()) != 4 {
		return w, 0, sdk.Errorf(sdk.InvalidArg, "unexpected size for WAIT input")
	}
	w.values = slices.Clone(in.Data())
	for rest := delay.Data(); len(rest) >= 4; rest = rest[4:] {
		w.delays = append(w.delays, milliseconds(rest))
	}
	return w, milliseconds(waiting.Data()), nil
}

func milliseconds(data []byte) time.Duration {
	return time.Duration(binary.LittleEndian.Uint32(data)) * time.Millisecond
}

// stream sends a response for each element, then the final flag.
func (i *instance) stream(factory *sdk.ResponseFactory, w work) {
	n := len(w.delays)
	if n == 0 {
		i.log.Info("IN size is zero, no responses sent")
	}
	for at, delay := range w.delays {
		i.log.Info(fmt.Sprintf("waiting %d ms, then sending response %d of %d", delay.Milliseconds(), at+1, n))
		sleep(i.ctx, delay)
		switch {
		case factory.Cancelled(): // no client waits for more
			_ = factory.SendFlags(sdk.SendFinal)
			return
		case i.ctx.Err() != nil: // a client must not take a part for the whole
			fail(factory, sdk.Errorf(sdk.Unavailable, "the model was unloaded after %d of %d responses", at, n))
			return
		}
		if err := send(factory, w.values[4*at:4*at+4], at); err != nil {
			fail(factory, err)
			return
		}
		i.log.Info(fmt.Sprintf("sent response %d of %d", at+1, n))
	}
	_ = factory.SendFlags(sdk.SendFinal)
}

// send sends one element and its index.
func send(factory *sdk.ResponseFactory, value []byte, index int) error {
	response, err := factory.NewResponse()
	if err != nil {
		return err
	}
	out, err := response.Output("OUT", sdk.Int32, []int64{1})
	if err != nil {
		return err
	}
	copy(out, value)
	idx, err := response.Output("IDX", sdk.Uint32, []int64{1})
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(idx, uint32(index))
	return response.Send(0, nil)
}

// fail ends a stream with an error.
func fail(factory *sdk.ResponseFactory, err error) {
	if response, refused := factory.NewResponse(); refused == nil {
		_ = response.Send(sdk.SendFinal, err)
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
