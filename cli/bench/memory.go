package bench

import (
	"context"
	"fmt"
	"os"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// directory is the directory of POSIX shared memory.
const directory = "/dev/shm/"

// sharedMemory holds tensors: one region with the inputs of all samples, and one with the outputs
// of all callers.
type sharedMemory struct {
	inputs, outputs string     // the regions, and their files
	at              [][]extent // of inputs, by sample and input
	outputBytes     int64
	perCaller       int64
	files           []string // bound: two
}

type extent struct{ offset, size int64 }

// newSharedMemory creates the files for a number of callers.
//
// bound: the samples
func newSharedMemory(o *options, config *kserve.ModelConfig, samples []sample, callers int) (*sharedMemory, error) {
	m := &sharedMemory{
		inputs: fmt.Sprintf("nereid_bench_%d_in", os.Getpid()), outputs: fmt.Sprintf("nereid_bench_%d_out", os.Getpid()),
		outputBytes: o.outputBytes, perCaller: o.outputBytes * int64(len(config.GetOutput())),
	}
	var all []byte
	for _, s := range samples {
		var of []extent
		for _, t := range s {
			of = append(of, extent{int64(len(all)), int64(len(t.Data))})
			all = append(all, t.Data...)
			all = append(all, make([]byte, (64-len(all)%64)%64)...)
		}
		m.at = append(m.at, of)
	}
	if len(all) == 0 {
		all = make([]byte, 64)
	}
	if err := m.write(m.inputs, all, int64(len(all))); err != nil {
		return nil, err
	}
	if err := m.write(m.outputs, nil, max(1, m.perCaller*int64(callers))); err != nil {
		m.remove()
		return nil, err
	}
	return m, nil
}

func (m *sharedMemory) write(name string, data []byte, size int64) error {
	file, err := os.OpenFile(directory+name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	defer file.Close()
	m.files = append(m.files, directory+name)
	if err := file.Truncate(size); err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	if _, err := file.WriteAt(data, 0); err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	return nil
}

// register registers the regions with the server.
func (m *sharedMemory) register(ctx context.Context, server grpcservice.GRPCInferenceServiceClient) error {
	for _, name := range []string{m.inputs, m.outputs} {
		info, err := os.Stat(directory + name)
		if err != nil {
			return err
		}
		if _, err := server.SystemSharedMemoryRegister(ctx, &kserve.SystemSharedMemoryRegisterRequest{Name: name, Key: "/" + name, ByteSize: uint64(info.Size())}); err != nil {
			return fmt.Errorf("register shared memory (the server needs --allow-client-shm, and has to run on this machine): %w", err)
		}
	}
	return nil
}

// end unregisters and removes the regions.
func (m *sharedMemory) end(ctx context.Context, server grpcservice.GRPCInferenceServiceClient) {
	for _, name := range []string{m.inputs, m.outputs} {
		_, _ = server.SystemSharedMemoryUnregister(ctx, &kserve.SystemSharedMemoryUnregisterRequest{Name: name}) // the server may have gone
	}
	m.remove()
}

func (m *sharedMemory) remove() {
	for _, name := range m.files {
		_ = os.Remove(name)
	}
}

// input returns the parameters with the location of a sample's input.
func (m *sharedMemory) input(sample, index int) []infer.Parameter {
	e := m.at[sample][index]
	return regionParameters(m.inputs, e.offset, e.size)
}

// output returns the parameters with the location of a caller's output.
func (m *sharedMemory) output(caller, index int) []infer.Parameter {
	return regionParameters(m.outputs, int64(caller)*m.perCaller+int64(index)*m.outputBytes, m.outputBytes)
}

func regionParameters(region string, offset, size int64) []infer.Parameter {
	return []infer.Parameter{
		{Name: "shared_memory_region", Kind: infer.StringParameter, String: region}, client.Int("shared_memory_offset", offset), client.Int("shared_memory_byte_size", size),
	}
}
