package sequence

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// heapZeros is the largest size of zeros on the heap: they travel inside frames.
const heapZeros = 256

// zeros are shared by all inputs of all empty slots: a block of the pool, which an instance reads
// without a copy.
type zeros struct {
	data   []byte
	memory infer.Memory // nil on the heap
}

// grow ensures that there are at least n zeros.
func (z *zeros) grow(n int, allocate func(int) ([]byte, infer.Memory, error)) error {
	if n <= len(z.data) {
		return nil
	}
	if n <= heapZeros || allocate == nil {
		z.drop()
		z.data = make([]byte, n) // bound: heapZeros, except in tests
		return nil
	}
	data, memory, err := allocate(n)
	if err != nil {
		return err
	}
	clear(data)
	z.drop()
	z.data, z.memory = data, memory
	return nil
}

func (z *zeros) drop() {
	if z.memory != nil {
		z.memory.Release()
	}
	*z = zeros{}
}

// restLocked releases the zeros of an idle lane.
func (l *lane) restLocked() {
	if l.executes == nil && l.zeros.memory != nil {
		l.zeros.drop()
	}
}

// paddingSize returns the size of an input with the shape of in and no values.
func paddingSize(in *infer.Tensor) int {
	if in.DataType != infer.Bytes {
		return len(in.Data)
	}
	elements, _ := infer.Elements(in.Shape)
	return int(elements) * 4 // of empty strings
}

// deny fails a batch whose padding could not be allocated.
func (b *slotBatch) deny() {
	now := backend.Now()
	b.executed(&b.batch, backend.Report{Start: now, ComputeStart: now, ComputeEnd: now, End: now, Err: b.denied})
	for _, r := range b.episodes {
		r.task.Send(infer.ErrorResponse(b.denied))
	}
}
