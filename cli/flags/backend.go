package flags

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid"
)

// backendFlags lists flags about backends, caches, instances, memory and devices.
func backendFlags() []group {
	return []group{
		{title: "Backend", flags: []flag{
			word("backend-directory", "Directory of plugins and Python-based backends.",
				func(o *Options) *string { return &o.Backends.Directory }),
			row("backend-config", "<<string>,<string>=<string>>", "<backend>,<key>=<value>: a setting of one backend; without <backend>, of all backends. May be given several times.",
				setBackendConfig),
		}},
		{title: "Repository Agent", flags: []flag{
			word("repoagent-directory", "Directory of repository agents.",
				func(o *Options) *string { return &o.Repository.AgentDirectory }),
		}},
		{title: "Response Cache", flags: []flag{
			row("cache-config", "<<string>,<string>=<string>>", "<cache>,<key>=<value>: a setting of the response cache, such as local,size=1048576. May be given several times.",
				setCacheConfig),
			word("cache-directory", "Directory of cache libraries.",
				func(o *Options) *string { return &o.Cache.Directory }),
		}},
		{title: "Rate Limiter", flags: []flag{
			row("rate-limit", "<string>", "\"execution_count\": instances wait for their turn by priority and for their resources; \"off\": they run as soon as they are ready. Default: off.",
				setRateLimit),
			row("rate-limit-resource", "<<string>:<integer>:<integer>>", "<resource>:<count>[:<device>]: the available amount of a resource, on every device or on one. May be given several times.",
				addResource),
		}},
		{title: "Memory/Device Management", flags: memoryFlags()},
	}
}

func memoryFlags() []flag {
	return []flag{
		typed("pinned-memory-pool-byte-size", "<integer>", "Size of the pinned memory pool, in bytes.",
			parseInt64, func(n int64) string { return strconv.FormatInt(n, 10) }, func(o *Options) *int64 { return &o.Metrics.Series.PinnedPoolBytes }),
		row("cuda-memory-pool-byte-size", "<<integer>:<integer>>", "<device>:<bytes>: size of the memory pool on a GPU. May be given several times.",
			setPerDevice(parseUint64, func(o *Options) *map[int]uint64 { return &o.Memory.CUDAPoolBytes })),
		row("cuda-virtual-address-size", "<<integer>:<integer>>", "<device>:<bytes>: address space for each growable state on a GPU. May be given several times.",
			setPerDevice(parseUint64, func(o *Options) *map[int]uint64 { return &o.Memory.CUDAVirtualAddressBytes })),
		row("min-supported-compute-capability", "<float>", "Minimum compute capability of GPUs that are used. Default: 6.0 if a CUDA driver is present, else 0.0.",
			setWith(parseFloat, func(o *Options) *float64 { return &o.Backends.MinComputeCapability })),
		number("buffer-manager-thread-count", "Number of threads that copy tensors.",
			func(o *Options) *int { return &o.Threads.BufferManager }),
		row("host-policy", "<<string>,<string>=<string>>", "<policy>,<key>=<value>: numa-node or cpu-cores of a policy. May be given several times.",
			setHostPolicy),
		row("model-load-gpu-limit", "<<device_id>:<fraction>>", "<device>:<fraction>: reject loads on a GPU once this fraction of its memory is in use. May be given several times.",
			setPerDevice(parseFloat, func(o *Options) *map[int]float64 { return &o.Backends.LoadGPULimit })),
	}
}

// deprecatedFlags still work; each prints a warning that names its successor.
func deprecatedFlags() []group {
	return []group{{title: "DEPRECATED", flags: []flag{
		row("strict-model-config", "<boolean>", "Use --disable-auto-complete-config instead.",
			func(p *parser, text string) error {
				p.warn("'--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.")
				strict, err := parseBool(text)
				p.oldStrict = &strict
				return err
			}),
		row("response-cache-byte-size", "<integer>", "Use --cache-config local,size=<bytes> instead.",
			setOldCache),
		row("trace-file", "<string>", "Use --trace-config triton,file=<path> instead.",
			setOldTraceFile),
		row("trace-level", "<string>", "Use --trace-config level=<OFF|TIMESTAMPS|TENSORS> instead.",
			addOldTraceLevel),
		row("trace-rate", "<integer>", "Use --trace-config rate=<n> instead.",
			setOldTrace("rate", "rate=<rate value>")),
		row("trace-count", "<integer>", "Use --trace-config count=<n> instead.",
			setOldTrace("count", "count=<count value>")),
		row("trace-log-frequency", "<integer>", "Use --trace-config triton,log-frequency=<n> instead.",
			setOldTrace("log-frequency", "triton,log-frequency=<log frequency value>")),
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

// setPerDevice returns the setter for "<device>:<value>".
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
