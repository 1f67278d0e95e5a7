package sequence

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// heapZeros is up to what size zeros lie on the heap: they travel inside frames.
const heapZeros = 256

// zeros are what the empty slots of batches get, for all of their inputs and at
// once: a block of the pool, which an instance sees without a copy.
type zeros struct {
	data   []byte
	memory infer.Memory // nil on the heap
}

// grow makes sure that there are n of them.
func (z *zeros) grow(n int, allocate func(int) ([]byte, infer.Memory, error)) error {
	if n <= len(z.data) {
		return nil
	}
	if n <= heapZeros || allocate == nil {
		z.drop()
		z.data = make([]byte, n)
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

// restLocked gives the lane's zeros back to the pool if it is idle.
func (l *lane) restLocked() {
	if l.executes == nil && l.zeros.memory != nil {
		l.zeros.drop()
	}
}

// paddingSize returns the bytes of an input that has the shape of in and no values.
func paddingSize(in *infer.Tensor) int {
	if in.DataType != infer.Bytes {
		return len(in.Data)
	}
	elements, _ := infer.Elements(in.Shape)
	return int(elements) * 4 // of empty strings
}

// deny answers a batch for whose padding there is no memory.
func (b *slotBatch) deny() {
	now := backend.Now()
	b.executed(&b.batch, backend.Report{Start: now, ComputeStart: now, ComputeEnd: now, End: now, Err: b.denied})
	for _, r := range b.episodes {
		r.task.Send(infer.ErrorResponse(b.denied))
	}
}
