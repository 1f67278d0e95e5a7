package placement

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Placement is one instance that a config asks for.
type Placement struct {
	Name   string // <group>_<number>
	Kind   string // "CPU", "GPU" or "MODEL"
	Device string // the number of its GPU, "0" elsewhere
	Group  *kserve.ModelInstanceGroup
}

// Of lists the instances that a config asks for, at most limit. model is the model's name, for
// error texts.
func Of(config *kserve.ModelConfig, model string, limit int) ([]Placement, error) {
	var list []Placement
	for _, group := range config.GetInstanceGroup() {
		kind, devices := "CPU", []string{"0"}
		switch group.GetKind() {
		case kserve.ModelInstanceGroup_KIND_GPU:
			kind, devices = "GPU", nil
			for _, gpu := range group.GetGpus() {
				devices = append(devices, strconv.Itoa(int(gpu))) // bound: the GPUs in the config
			}
		case kserve.ModelInstanceGroup_KIND_MODEL:
			kind = "MODEL"
		}
		if n := int64(group.GetCount()) * int64(len(devices)); int64(len(list))+n > int64(limit) {
			return nil, infer.Errorf(infer.InvalidArg, "instance group %s of model %s asks for %d instances, a model has %d at most", group.GetName(), model, n, limit)
		}
		for i := range group.GetCount() {
			for _, device := range devices {
				list = append(list, Placement{Name: fmt.Sprintf("%s_%d", group.GetName(), i), Kind: kind, Device: device, Group: group}) // bound: limit; names of groups have at most budget.MaxName bytes
			}
		}
	}
	if len(list) == 0 {
		return nil, infer.Errorf(infer.InvalidArg, "must specify one or more 'instance group's for %s", model)
	}
	return list, nil
}

// Number returns the number of the GPU, 0 elsewhere.
func (p *Placement) Number() int32 {
	n, err := strconv.ParseInt(p.Device, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// GPU returns 1 + the number of the GPU, 0 without one.
func (p *Placement) GPU() int32 {
	if p.Kind != "GPU" {
		return 0
	}
	return 1 + p.Number()
}

// signatures numbers instance groups. Two groups have the same number if their instances can
// replace each other. It looks at each group once: a config has few groups and thousands of
// instances.
type signatures struct {
	groups map[*kserve.ModelInstanceGroup]int // bound: the groups of two configs
	texts  map[string]int                     // bound: the groups of two configs
}

func (s *signatures) of(group *kserve.ModelInstanceGroup) int {
	if n, known := s.groups[group]; known {
		return n
	}
	same := proto.Clone(group).(*kserve.ModelInstanceGroup) // bound: a part of the config
	same.Name, same.Count = "", 0
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(same) // bound: a part of the config
	if err != nil {
		text = []byte(group.GetName()) // bound: a part of the config
	}
	n, known := s.texts[string(text)]
	if !known {
		n = len(s.texts)
		s.texts[string(text)] = n // bound: a part of the config
	}
	s.groups[group] = n
	return n
}

// Match compares the present instances with the wanted ones. An instance with the same name and
// settings is preferred to one with the same settings only. at returns the placement of an
// instance. kept is in the order of wanted, with the zero value where an instance is missing.
func Match[T comparable](present, wanted []T, at func(T) *Placement) (kept, surplus []T) {
	var missing T
	kept = make([]T, len(wanted)) // bound: the instances
	left := slices.Clone(present) // bound: the instances
	numbers := signatures{groups: make(map[*kserve.ModelInstanceGroup]int), texts: make(map[string]int)}
	for _, byName := range []bool{true, false} {
		for i, w := range wanted {
			if kept[i] != missing {
				continue
			}
			want := at(w)
			number := numbers.of(want.Group)
			found := slices.IndexFunc(left, func(in T) bool {
				have := at(in)
				return numbers.of(have.Group) == number && have.Device == want.Device && (have.Name == want.Name || !byName)
			})
			if found >= 0 {
				kept[i] = left[found]
				left = slices.Delete(left, found, found+1)
			}
		}
	}
	return kept, left
}
