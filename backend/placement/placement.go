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
				devices = append(devices, strconv.Itoa(int(gpu)))
			}
		case kserve.ModelInstanceGroup_KIND_MODEL:
			kind = "MODEL"
		}
		if n := int64(group.GetCount()) * int64(len(devices)); int64(len(list))+n > int64(limit) {
			return nil, infer.Errorf(infer.InvalidArg, "instance group %s of model %s asks for %d instances, a model has %d at most", group.GetName(), model, n, limit)
		}
		for i := range group.GetCount() {
			for _, device := range devices {
				list = append(list, Placement{Name: fmt.Sprintf("%s_%d", group.GetName(), i), Kind: kind, Device: device, Group: group})
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

// signature is equal for two instances that can replace each other.
func (p *Placement) signature() string {
	group := proto.Clone(p.Group).(*kserve.ModelInstanceGroup)
	group.Name, group.Count = "", 0
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(group)
	if err != nil {
		return p.Name // it matches no other instance
	}
	return p.Device + ":" + string(text)
}

// Match compares the present instances with the wanted ones. An instance with the same name and
// signature is preferred to one with the same signature only. at returns the placement of an
// instance. kept is in the order of wanted, with the zero value where an instance is missing.
func Match[T comparable](present, wanted []T, at func(T) *Placement) (kept, surplus []T) {
	var missing T
	kept = make([]T, len(wanted))
	left := slices.Clone(present)
	for _, byName := range []bool{true, false} {
		for i, w := range wanted {
			if kept[i] != missing {
				continue
			}
			want := at(w)
			signature := want.signature()
			found := slices.IndexFunc(left, func(in T) bool {
				have := at(in)
				return have.signature() == signature && (have.Name == want.Name || !byName)
			})
			if found >= 0 {
				kept[i] = left[found]
				left = slices.Delete(left, found, found+1)
			}
		}
	}
	return kept, left
}
