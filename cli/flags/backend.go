package flags

import (
	"errors"
	"strings"

	"github.com/nereid-serving/nereid"
)

// backendFlags are about backends, caches, instances, memory and devices.
func backendFlags() []group {
	return []group{
		{title: "Backend", flags: []flag{
			{"backend-directory", "<string>", "Directory of backends' libraries. Default: /opt/tritonserver/backends.",
				setString(func(o *Options) *string { return &o.Backends.Directory })},
			{"backend-config", "<<string>,<string>=<string>>", "<backend>,<key>=<value>: a setting of a backend; without " +
				"<backend>, of all. May be given several times.",
				setBackendConfig},
		}},
		{title: "Repository Agent", flags: []flag{
			{"repoagent-directory", "<string>", "Directory of repository agents' libraries. " +
				"Default: /opt/tritonserver/repoagents.",
				setString(func(o *Options) *string { return &o.Repository.AgentDirectory })},
		}},
		{title: "Response Cache", flags: []flag{
			{"cache-config", "<<string>,<string>=<string>>", "<cache>,<key>=<value>: a setting of the response cache, such " +
				"as local,size=1048576. May be given several times.",
				setCacheConfig},
			{"cache-directory", "<string>", "Directory of caches' libraries. Default: /opt/tritonserver/caches.",
				setString(func(o *Options) *string { return &o.Cache.Directory })},
		}},
		{title: "Rate Limiter", flags: []flag{
			{"rate-limit", "<string>", "\"execution_count\": instances wait for their turn by priority and use, and for " +
				"their resources; \"off\": they run when they are ready. Default: off.",
				setRateLimit},
			{"rate-limit-resource", "<<string>:<integer>:<integer>>", "<resource>:<count>[:<device>]: how much of a resource " +
				"there is, on each device or on one. May be given several times.",
				addResource},
		}},
		{title: "Memory/Device Management", flags: memoryFlags()},
	}
}

func memoryFlags() []flag {
	return []flag{
		{"pinned-memory-pool-byte-size", "<integer>", "Memory that is pinned for GPUs. Default: 268435456.",
			setWith(parseInt64, func(o *Options) *int64 { return &o.Metrics.Series.PinnedPoolBytes })},
		{"cuda-memory-pool-byte-size", "<<integer>:<integer>>", "<device>:<bytes>: memory taken on a GPU. May be given " +
			"several times.",
			setPerDevice(parseUint64, func(o *Options) *map[int]uint64 { return &o.Memory.CUDAPoolBytes })},
		{"cuda-virtual-address-size", "<<integer>:<integer>>", "<device>:<bytes>: room for each state that can grow on a " +
			"GPU. May be given several times.",
			setPerDevice(parseUint64, func(o *Options) *map[int]uint64 { return &o.Memory.CUDAVirtualAddressBytes })},
		{"min-supported-compute-capability", "<float>", "GPUs below this are not used. Default: 6.0 where there is a CUDA driver, else 0.0.",
			setWith(parseFloat, func(o *Options) *float64 { return &o.Backends.MinComputeCapability })},
		{"buffer-manager-thread-count", "<integer>", "Threads that help to copy tensors. Default: 0.",
			setInt(func(o *Options) *int { return &o.Threads.BufferManager })},
		{"host-policy", "<<string>,<string>=<string>>", "<policy>,<key>=<value>: numa-node or cpu-cores of a policy. May be " +
			"given several times.",
			setHostPolicy},
		{"model-load-gpu-limit", "<<device_id>:<fraction>>", "Refuse to load models on a GPU of which more than this " +
			"fraction is taken. May be given several times.",
			setPerDevice(parseFloat, func(o *Options) *map[int]float64 { return &o.Backends.LoadGPULimit })},
	}
}

// deprecatedFlags still work; each prints a warning that names its successor.
func deprecatedFlags() []group {
	return []group{{title: "DEPRECATED", flags: []flag{
		{"strict-model-config", "<boolean>", "Instead: --disable-auto-complete-config.",
			func(p *parser, text string) error {
				p.warn("'--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.")
				strict, err := parseBool(text)
				p.oldStrict = &strict
				return err
			}},
		{"response-cache-byte-size", "<integer>", "Instead: --cache-config local,size=<bytes>.",
			setOldCache},
		{"trace-file", "<string>", "Instead: --trace-config triton,file=<path>.", setOldTraceFile},
		{"trace-level", "<string>", "Instead: --trace-config level=<OFF|TIMESTAMPS|TENSORS>.", addOldTraceLevel},
		{"trace-rate", "<integer>", "Instead: --trace-config rate=<n>.",
			setOldTrace("rate", "rate=<rate value>")},
		{"trace-count", "<integer>", "Instead: --trace-config count=<n>.",
			setOldTrace("count", "count=<count value>")},
		{"trace-log-frequency", "<integer>", "Instead: --trace-config triton,log-frequency=<n>.",
			setOldTrace("log-frequency", "triton,log-frequency=<log frequency value>")},
	}}}
}

func setBackendConfig(p *parser, text string) error {
	s, ok := parseSetting(text, ",")
	switch {
	case s.comma && s.name == "":
		return errors.New("No backend specified. --backend-config option format is <backend name>,<setting>=<value> or " +
			"<setting>=<value>. Got " + text)
	case !ok:
		return errors.New("--backend-config option format is '<backend name>,<setting>=<value>'. Got " + text)
	}
	put(&p.o.Backends.Settings, s)
	return nil
}

func setCacheConfig(p *parser, text string) error {
	s, ok := parseSetting(text, ",")
	switch {
	case s.name == "":
		return errors.New("No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got " + text)
	case !ok:
		return errors.New("--cache-config option format is '<cache name>,<setting>=<value>'. Got " + text)
	}
	p.cacheGiven = true
	put(&p.o.Cache.Settings, s)
	return nil
}

func setOldCache(p *parser, text string) error {
	size, err := parseInt64(text)
	if err != nil {
		return err
	}
	p.oldCache = text
	p.warn("'--response-cache-byte-size' has been deprecated! This will default to the 'local' cache implementation with "+
		"the provided byte size for its config. Please use '--cache-config' instead. The equivalent --cache-config CLI args "+
		"would be: '--cache-config=local,size=%d'", size)
	put(&p.o.Cache.Settings, setting{name: "local", key: "size", value: text})
	return nil
}

func setHostPolicy(p *parser, text string) error {
	s, ok := parseSetting(text, ",")
	if !ok || s.name == "" {
		return errors.New("--host-policy option format is '<policy name>,<setting>=<value>'. Got " + text)
	}
	put((*map[string]map[string]string)(&p.o.HostPolicies), s)
	return nil
}

// put stores a setting by its name and key.
func put(all *map[string]map[string]string, s setting) {
	if *all == nil {
		*all = map[string]map[string]string{}
	}
	if (*all)[s.name] == nil {
		(*all)[s.name] = map[string]string{}
	}
	(*all)[s.name][s.key] = s.value
}

func setRateLimit(p *parser, text string) error {
	switch strings.ToLower(text) {
	case "off", "execution_count":
		p.o.RateLimit.ExecutionCount = strings.ToLower(text) != "off"
		return nil
	}
	return errors.New("invalid argument for --rate-limit")
}

func addResource(p *parser, text string) error {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return errors.New("--rate-limit-resource option format is '<resource_name>:<count>:<device>' or " +
			"'<resource_name>:<count>'. Got " + text)
	}
	resource := nereid.Resource{Name: parts[0], Device: -1}
	var err error
	if resource.Count, err = parseInt(parts[1]); err != nil {
		return err
	}
	if len(parts) == 3 {
		if resource.Device, err = parseInt(parts[2]); err != nil {
			return err
		}
	}
	p.o.RateLimit.Resources = append(p.o.RateLimit.Resources, resource)
	return nil
}

// setPerDevice makes the setter for "<device>:<value>".
func setPerDevice[T any](parse func(string) (T, error), field func(*Options) *map[int]T) func(*parser, string) error {
	return func(p *parser, text string) error {
		first, second, err := parsePair(text, ":")
		if err != nil {
			return err
		}
		device, err := parseInt(first)
		if err != nil {
			return err
		}
		value, err := parse(second)
		if err != nil {
			return err
		}
		if *field(p.o) == nil {
			*field(p.o) = map[int]T{}
		}
		(*field(p.o))[device] = value
		return nil
	}
}
