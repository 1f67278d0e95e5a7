package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/devices"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/objectstore"
)

// agentTable returns the first table of the start-up output, which has no agents.
func agentTable() string { return logs.RenderTable([]string{"Repository Agent", "Path"}, nil) }

// backendRow is a backend that a loaded model uses.
type backendRow struct {
	name, path string
	config     string // from Options.BackendMessage
}

// backendTable returns the second table.
func backendTable(backends []backendRow) string {
	var rows [][]string
	for _, b := range backends {
		rows = append(rows, []string{b.name, b.path, b.config})
	}
	return logs.RenderTable([]string{"Backend", "Path", "Config"}, rows)
}

// modelRow is a version of a model, or a model without versions.
type modelRow struct {
	name    string
	version string // "-" if unknown
	status  string // READY, "UNAVAILABLE: <reason>", or "Not loaded: No model version was found"
}

// modelTable returns the third table.
func modelTable(models []modelRow) string {
	var rows [][]string
	for _, m := range models {
		rows = append(rows, []string{m.name, m.version, m.status})
	}
	return logs.RenderTable([]string{"Model", "Version", "Status"}, rows)
}

// startRows returns the rows of the start-up tables: the backends that models use, and the models
// that the server tried to load.
func startRows(o *flags.Options, server *nereid.Server) (backends []backendRow, models []modelRow) {
	type use struct{ name, path string }
	used := make(map[use]bool)
	for _, s := range server.Registry().Attempted() {
		if s.Version == 0 {
			models = append(models, modelRow{s.Name, "-", "Not loaded: No model version was found"})
			continue
		}
		if s.Backend != "" {
			path := "built in"
			switch script := o.Backends.Script(s.Backend); {
			case o.Backends.Linked[s.Backend] != nil:
				path = "linked in"
			case s.Plugin != "":
				path = s.Plugin
			case s.PythonBased && script != "":
				path = script
			}
			used[use{s.Backend, path}] = true
			if s.PythonBased {
				used[use{"python", "built in"}] = true
			}
		}
		status := string(s.State)
		if s.Reason != "" {
			status += ": " + s.Reason
		}
		models = append(models, modelRow{s.Name, strconv.FormatInt(s.Version, 10), status})
	}
	byName := func(a, b use) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path)) }
	for _, u := range slices.SortedFunc(maps.Keys(used), byName) {
		backends = append(backends, backendRow{name: u.name, path: u.path, config: o.BackendMessage(u.name)})
	}
	return backends, models
}

// optionTable returns the fourth table. The version and the extensions are those of the server's
// metadata.
func optionTable(o *flags.Options, serverVersion string, extensions []string) string {
	var rows [][]string
	add := func(option, value string) { rows = append(rows, []string{option, value}) }
	flag := func(on bool) string { return map[bool]string{false: "0", true: "1"}[on] }

	add("server_id", o.ServerID)
	add("server_version", serverVersion)
	add("server_extensions", strings.Join(extensions, " "))
	for i, path := range o.Repository.Paths {
		if location, inStore, _ := objectstore.Parse(path); inStore {
			path = location.String() // without possible secrets, even if the location is invalid
		}
		add(fmt.Sprintf("model_repository_path[%d]", i), path)
	}
	add("model_control_mode", string(o.Repository.Control))
	for i, model := range o.Repository.StartupModels {
		add(fmt.Sprintf("startup_models_%d", i), model)
	}
	add("strict_model_config", flag(o.Repository.DisableAutoCompleteConfig))
	add("model_config_name", o.Repository.ConfigName)
	limit := "OFF"
	if o.RateLimit.ExecutionCount {
		limit = "EXEC_COUNT"
	}
	add("rate_limit", limit)
	for i, r := range sortedResources(o) {
		// Triton omits the second comma, and scripts rely on that.
		add(fmt.Sprintf("rate_limit_resource[%d]", i), fmt.Sprintf(`{"name":"%s", "count":%d "device":%d}`, r.Name, r.Count, r.Device))
	}
	add("pinned_memory_pool_byte_size", strconv.FormatInt(o.Metrics.Series.PinnedPoolBytes, 10))
	for _, device := range slices.Sorted(maps.Keys(o.Memory.CUDAPoolBytes)) {
		add(fmt.Sprintf("cuda_memory_pool_byte_size{%d}", device), strconv.FormatUint(o.Memory.CUDAPoolBytes[device], 10))
	}
	add("min_supported_compute_capability", strconv.FormatFloat(o.Backends.MinComputeCapability, 'f', 1, 64))
	add("strict_readiness", flag(o.Repository.StrictReadiness))
	add("exit_timeout", strconv.FormatInt(int64(o.ExitTimeout/time.Second), 10))
	add("cache_enabled", flag(len(o.Cache.Settings) > 0))
	return logs.RenderTable([]string{"Option", "Value"}, rows)
}

// poolBytes is Triton's default of --cuda-memory-pool-byte-size.
const poolBytes = 64 << 20

// fillPools completes the pools in the start-up table: Triton's has one for each device.
func fillPools(o *flags.Options, list []devices.Device) {
	if o.Memory.CUDAPoolBytes == nil {
		o.Memory.CUDAPoolBytes = make(map[int]uint64)
	}
	for i := range list {
		number := int(list[i].Number)
		if _, given := o.Memory.CUDAPoolBytes[number]; !given && list[i].Capability() >= o.Backends.MinComputeCapability {
			o.Memory.CUDAPoolBytes[number] = poolBytes
		}
	}
}

// sortedResources returns the resources by device and name. Of duplicates the first counts.
func sortedResources(o *flags.Options) []nereid.Resource {
	first := map[[2]string]nereid.Resource{}
	for _, r := range o.RateLimit.Resources {
		key := [2]string{r.Name, strconv.Itoa(r.Device)}
		if _, twice := first[key]; !twice {
			first[key] = r
		}
	}
	return slices.SortedFunc(maps.Values(first), func(a, b nereid.Resource) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Name, b.Name))
	})
}

// creatingServer returns the last line of a failed start.
func creatingServer(err error) string {
	e := infer.AsError(err).Detailed()
	return "error: creating server: " + e.Code.String() + " - " + e.Message
}

// tellNotLoaded calls tell for each model that failed to load, with a line that has location and
// remedy. It does nothing for other errors. The lines follow those of creatingServer.
func tellNotLoaded(err error, tell func(model, line string)) {
	var start *models.StartError
	if errors.As(err, &start) {
		for _, fault := range start.Faults {
			tell(fault.Model, "not loaded: "+fault.String())
		}
	}
}

// settingHostPolicy returns the lines about an invalid host policy.
func settingHostPolicy(err error) string {
	e := infer.AsError(err)
	return "Failed to build Triton option:\nerror: setting host policy: " + e.Code.String() + " - " + e.Message
}

// checkRepository returns the error about an unusable repository, as creatingServer shows it.
func checkRepository(o *flags.Options) error {
	switch models := o.Repository.StartupModels; {
	case len(o.Repository.Paths) == 0:
		return infer.Errorf(infer.InvalidArg, "--model-repository must be specified")
	case len(models) > 1 && slices.Contains(models, "*"):
		return infer.Errorf(infer.InvalidArg, "Wildcard model name '*' must be the ONLY startup model if specified at all.")
	}
	return nil
}
