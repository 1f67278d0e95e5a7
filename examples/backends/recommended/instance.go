package recommended

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/nereid-serving/nereid/sdk"
)

// instance executes one batch at a time. All batches reuse its buffer.
type instance struct {
	model      *model
	statistics sdk.Statistics
	batch      []byte
}

// part is the data that Execute keeps about one request.
type part struct {
	response *sdk.Response
	input    *sdk.Input
	err      error // what this request is answered with
	end      int   // of its bytes in the batch
}

func (i *instance) Execute(_ context.Context, requests []*sdk.Request) error {
	executing := sdk.Now()
	parts := make([]part, len(requests))
	for at, request := range requests {
		var err error
		if parts[at].response, err = request.NewResponse(); err != nil {
			return err // none of the requests has been taken
		}
	}
	size := i.gather(requests, parts)
	m := i.model
	m.log.Info(fmt.Sprintf("model %s: requests in batch %d", m.name, len(requests)))
	m.log.Info(fmt.Sprintf("batched %s value: %s", m.input, values(m.dataType, i.batch)))

	computing := sdk.Now()
	// A real backend would run its model with the whole batch here.
	computed := sdk.Now()

	i.scatter(parts)
	for at := range parts {
		p := &parts[at]
		if err := p.response.Send(sdk.SendFinal, p.err); err != nil && p.err == nil {
			p.err = err
		}
	}
	times := sdk.Times{ExecStart: executing, ComputeStart: computing, ComputeEnd: computed, ExecEnd: sdk.Now()}
	for at, request := range requests {
		_ = i.statistics.Request(request, parts[at].err == nil, times) // before the release: it needs the request
		_ = request.Release(sdk.ReleaseAll)                            // fails only where requests are rescheduled
	}
	_ = i.statistics.Batch(size, times)
	return nil
}

// gather copies the inputs into one buffer, and returns their total number of rows.
func (i *instance) gather(requests []*sdk.Request, parts []part) (size int) {
	i.batch = i.batch[:0]
	for at, request := range requests {
		p := &parts[at]
		if p.input, p.err = request.Input(i.model.input); p.err == nil {
			i.batch = append(i.batch, p.input.Data()...)
			if i.model.batching {
				size += int(p.input.Shape()[0])
			} else {
				size++
			}
		}
		p.end = len(i.batch)
	}
	return size
}

// scatter gives each request its part of the batch.
func (i *instance) scatter(parts []part) {
	start := 0
	for at := range parts {
		p := &parts[at]
		if p.err == nil {
			var output []byte
			if output, p.err = p.response.Output(i.model.output, i.model.dataType, p.input.Shape()); p.err == nil {
				copy(output, i.batch[start:p.end])
			}
		}
		start = p.end
	}
}

func (i *instance) Close() {}

// values formats elements as C++ streams do, as in "[ 1, 2.5 ]".
func values(kind sdk.DataType, data []byte) string {
	var texts []string
	for size := kind.Size(); size > 0 && len(data) >= size; data = data[size:] {
		var value any
		switch bits := data[:size]; kind {
		case sdk.Bool, sdk.Uint8:
			value = bits[0]
		case sdk.Int8:
			value = int8(bits[0])
		case sdk.Int16:
			value = int16(binary.LittleEndian.Uint16(bits))
		case sdk.Uint16, sdk.FP16, sdk.BF16: // the last two by their bits
			value = binary.LittleEndian.Uint16(bits)
		case sdk.Int32:
			value = int32(binary.LittleEndian.Uint32(bits))
		case sdk.Uint32:
			value = binary.LittleEndian.Uint32(bits)
		case sdk.Int64:
			value = int64(binary.LittleEndian.Uint64(bits))
		case sdk.Uint64:
			value = binary.LittleEndian.Uint64(bits)
		case sdk.FP32:
			value = math.Float32frombits(binary.LittleEndian.Uint32(bits))
		case sdk.FP64:
			value = math.Float64frombits(binary.LittleEndian.Uint64(bits))
		}
		texts = append(texts, fmt.Sprint(value))
	}
	return "[ " + strings.Join(texts, ", ") + " ]"
}
