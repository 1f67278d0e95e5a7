package placement

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// The settings of a host policy.
const (
	cpuCores = "cpu-cores" // "<lowest>-<highest>"
	numaNode = "numa-node" // a number
)

// maxCores is the capacity of the kernel's core sets in this package.
var maxCores = len(unix.CPUSet{}) * strconv.IntSize

// HostPolicies are the settings of the command line for the placement of instances, by policy name
// and setting name.
type HostPolicies map[string]map[string]string

// Validate rejects unknown settings, in Triton's words.
func (p HostPolicies) Validate() error {
	for _, settings := range p {
		for key := range settings {
			if key != cpuCores && key != numaNode {
				return infer.Errorf(infer.Unsupported, "Unsupported host policy setting '%s' is specified, supported settings are '%s', '%s'", key, numaNode, cpuCores)
			}
		}
	}
	return nil
}

// PolicyName returns the host policy of a group's instances on a device.
func PolicyName(group *kserve.ModelInstanceGroup, device string) string {
	switch {
	case group.GetHostPolicy() != "":
		return group.GetHostPolicy()
	case group.GetKind() == kserve.ModelInstanceGroup_KIND_GPU:
		return "gpu_" + device
	case group.GetKind() == kserve.ModelInstanceGroup_KIND_MODEL:
		return "model"
	}
	return "cpu"
}

// JSON returns a policy with its settings as Triton gives it to backends:
// {"cpu":{"numa-node":"0"}}.
func (p HostPolicies) JSON(policy string) string {
	settings := p[policy]
	if settings == nil {
		settings = map[string]string{}
	}
	text, err := json.Marshal(map[string]map[string]string{policy: settings})
	if err != nil { // texts can always be encoded
		return "{}"
	}
	return string(text) // bound: the name in the config, and the settings of the command line
}

// Of lists the cores that a policy allows, ascending; nil means all. Errors have Triton's texts.
func (p HostPolicies) Of(policy string) ([]int, error) {
	settings := p[policy]
	if text, ok := settings[numaNode]; ok {
		cores, err := coresOfNode(text)
		if err != nil || settings[cpuCores] == "" {
			return cores, err
		}
	}
	text, ok := settings[cpuCores]
	if !ok {
		return nil, nil
	}
	cores := parseRange(text)
	if cores == nil {
		return nil, infer.Errorf(infer.InvalidArg, "host policy setting '%s' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got %s", cpuCores, text)
	}
	return cores, nil
}

// parseRange parses "<lowest>-<highest>"; nil if the text has another form.
func parseRange(text string) []int {
	from, to, ok := strings.Cut(text, "-")
	low, err1 := strconv.Atoi(from)
	high, err2 := strconv.Atoi(to)
	if !ok || err1 != nil || err2 != nil || low < 0 || high < low || low >= maxCores {
		return nil
	}
	var cores []int
	for core := low; core <= min(high, maxCores-1); core++ {
		cores = append(cores, core) // bound: maxCores
	}
	return cores
}

// nodes is the kernel's directory of NUMA nodes.
var nodes = "/sys/devices/system/node"

// coresOfNode lists the cores of a NUMA node. A process there gets the node's own memory first.
func coresOfNode(text string) ([]int, error) {
	node, err := strconv.Atoi(text)
	if err == nil && node >= 0 {
		var list []byte
		if list, err = os.ReadFile(filepath.Join(nodes, fmt.Sprintf("node%d", node), "cpulist")); err == nil { // bound: the cores of the machine
			return parseList(strings.TrimSpace(string(list))), nil // bound: the cores of the machine
		}
		if _, none := os.Stat(nodes); none != nil && node == 0 {
			return nil, nil // a kernel without NUMA
		}
	}
	return nil, infer.Errorf(infer.Internal, "Unable to set NUMA memory policy: Invalid argument")
}

// parseList parses the kernel's format "0-3,8".
func parseList(text string) []int {
	var cores []int
	for part := range strings.SplitSeq(text, ",") {
		if !strings.Contains(part, "-") {
			part += "-" + part
		}
		cores = append(cores, parseRange(part)...) // bound: the cores of the machine
	}
	slices.Sort(cores)
	return cores
}

// Pin binds a process with all its threads to cores. Later threads and child processes inherit
// that.
func Pin(pid int, cores []int) error {
	if len(cores) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return infer.Errorf(infer.Internal, "run a stub on the cores %d to %d, as its host policy says: %v", cores[0], cores[len(cores)-1], err)
	}
	// A program may have started threads before its first one was bound.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil //nolint:nilerr // it has ended, which is noticed elsewhere
	}
	for _, task := range tasks {
		if thread, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetaffinity(thread, &set) // it may have ended
		}
	}
	return nil
}
