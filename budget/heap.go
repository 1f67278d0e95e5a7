package budget

import "runtime/metrics"

// heapState is the runtime's memory by its own figures, in bytes.
type heapState struct {
	size      int64 // taken from the system and not returned: the heap, stacks, the runtime's own
	live      int64 // live objects at the last collection
	other     int64 // part of size that is neither objects nor free heap
	allocated int64 // ever
	// collecting and working are the processor seconds spent on collections and in total, as of the
	// last collection.
	collecting, working float64
}

// heapSamples are the metrics for heapState.
var heapSamples = [...]string{
	"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes",
	"/memory/classes/heap/objects:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/unused:bytes",
	"/gc/heap/live:bytes", "/gc/heap/allocs:bytes",
	"/cpu/classes/gc/total:cpu-seconds", "/cpu/classes/total:cpu-seconds", "/cpu/classes/idle:cpu-seconds",
}

// readHeap returns a function that reads the state of the heap. One goroutine calls it.
func readHeap() func() heapState {
	var samples [len(heapSamples)]metrics.Sample
	for i, name := range heapSamples {
		samples[i].Name = name
	}
	bytes := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	seconds := func(i int) float64 { return samples[i].Value.Float64() }
	return func() heapState {
		metrics.Read(samples[:])
		size := bytes(0) - bytes(1)
		return heapState{
			size: size, live: bytes(5), other: size - bytes(2) - bytes(3) - bytes(4), allocated: bytes(6),
			collecting: seconds(7), working: seconds(8) - seconds(9),
		}
	}
}
