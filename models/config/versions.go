package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/kserve"
)

// notVersions are directories of a model that are not versions.
var notVersions = []string{"configs", "warmup", "initial_state"}

// PresentVersions returns the version numbers among the names of a model's directories, ascending,
// with a log line for each other name. Triton also accepts names that only begin with a number, as
// the directory of that number, which may not exist: here they are ignored.
//
// bound: the directories of the model
func PresentVersions(directories []string) (numbers []int64, warnings []string) {
	for _, name := range directories {
		if slices.Contains(notVersions, name) {
			continue
		}
		if len(name) > 1 && name[0] == '0' {
			warnings = append(warnings, fmt.Sprintf("ignore version directory '%s' which contains leading zeros in its directory name", name))
			continue
		}
		n, err := strconv.ParseInt(name, 10, 64)
		if err != nil || strings.ContainsAny(name, "+-") {
			warnings = append(warnings, fmt.Sprintf("ignore version directory '%s' which fails to convert to integral number", name))
			continue
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, warnings
}

// maxMissing is how many missing versions SelectVersions names.
const maxMissing = 100

// SelectVersions applies the policy of a normalised configuration to the present versions,
// ascending. The selected ones ascend too.
func SelectVersions(config *kserve.ModelConfig, present []int64) (selected []int64, warnings []string) {
	switch p := config.GetVersionPolicy().GetPolicyChoice().(type) {
	case *kserve.ModelVersionPolicy_Latest_:
		n := min(int64(len(present)), int64(p.Latest.GetNumVersions()))
		return present[int64(len(present))-n:], nil
	case *kserve.ModelVersionPolicy_Specific_:
		missing := 0
		wanted := make([]bool, len(present)) // bound: the directories of the model
		for _, v := range p.Specific.GetVersions() {
			if i, is := slices.BinarySearch(present, v); is {
				wanted[i] = true
			} else if missing++; missing <= maxMissing {
				warnings = append(warnings, fmt.Sprintf("version %d is specified for model '%s', but the version directory is not present", v, config.GetName())) // bound: maxMissing
			}
		}
		for i, v := range present {
			if wanted[i] {
				selected = append(selected, v) // bound: the directories of the model
			}
		}
		if missing > maxMissing {
			warnings = append(warnings, fmt.Sprintf("%d more versions are specified for model '%s' whose directories are not present", missing-maxMissing, config.GetName()))
		}
		return selected, warnings
	default: // all, and a policy without a choice
		return present, nil
	}
}
