package nereid

import (
	"os"
	"path/filepath"

	"github.com/nereid-serving/nereid/devices"
	"github.com/nereid-serving/nereid/metrics"
)

// countDevices counts the CUDA devices while the rest of the server is created. It starts nothing
// if there is no driver or no Python backend.
func (s *Server) countDevices(counters *metrics.Registry) {
	if s.python == nil || !devices.Found(os.Getenv) {
		return
	}
	shown := s.options.Metrics.Allow && s.options.Metrics.Series.GPU
	s.devices = devices.Start(devices.Config{
		Children: s.supervisor.Children(), Helper: filepath.Join(s.python.Directory(), "nereid_devices"),
		Interpreters: s.python.Interpreters, MinCapability: s.options.Backends.MinComputeCapability,
		Measure: shown || len(s.options.Backends.LoadGPULimit) > 0, Log: s.log,
	})
	s.copier = devices.NewCopier(devices.CopierConfig{
		Children: s.supervisor.Children(), Helper: filepath.Join(s.python.Directory(), "nereid_devices"),
		Interpreters: s.python.Interpreters, List: s.devices.List, Requests: s.requests, Log: s.log,
	})
	s.supervisor.SetCopier(s.copier)
	if shown {
		counters.GPUs(s.busy)
	}
}

// gpus waits for the count and lists the GPUs on which instances may be placed.
func (s *Server) gpus() []int32 { return s.devices.Usable() }

// processes returns the memory and CPU time of instance processes, with the UUIDs of their GPUs.
func (s *Server) processes() []metrics.Process {
	list := s.supervisor.Processes()
	if name := s.gpuUUID(); name != nil {
		for i := range list {
			if one := &list[i]; one.Device > 0 {
				one.GPU = name(one.Device - 1)
			}
		}
	}
	return list
}

// gpuUUID returns a function from the number of a GPU to its UUID, or nil without a driver.
func (s *Server) gpuUUID() func(number int32) string {
	if s.devices == nil {
		return nil
	}
	return func(number int32) string {
		if list := s.devices.List(); number >= 0 && int(number) < len(list) {
			return list[number].UUID
		}
		return ""
	}
}

// admit reports whether a GPU has room for an instance that has been started there. It has if its
// memory is unknown.
func (s *Server) admit(gpu int32) bool {
	limit, limited := s.options.Backends.LoadGPULimit[int(gpu)]
	if !limited {
		return true
	}
	share, known := s.devices.MemoryUsed(gpu)
	if !known {
		s.log.Warn().Int32("device", gpu).Msg("the memory limit of a GPU is not checked, because its memory use is unknown")
	}
	return !known || share <= limit
}

// busy returns the load of the GPUs.
func (s *Server) busy() (list []metrics.GPU) {
	for _, one := range s.devices.Samples() {
		list = append(list, metrics.GPU(one)) // bound: the GPUs
	}
	return list
}

// Devices waits for the count and lists the CUDA devices of this process, as in the start-up
// tables.
func (s *Server) Devices() []devices.Device { return s.devices.List() }
