package models

import (
	"fmt"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// override is what a load request brings in place of what the repository has.
type override struct {
	config *kserve.ModelConfig // nil: the repository's
	upload *repository.Upload  // nil: the repository's
}

// override reads the parameters of a load request. The caller drops the
// upload. The error is for the log.
func (r *Registry) override(name, given string, files map[string][]byte) (o override, err error) {
	if given == "" {
		if len(files) > 0 {
			return o, infer.Errorf(infer.InvalidArg, "Load parameter 'config' must be specified for model file override")
		}
		return o, nil
	}
	if o.config, err = config.ParseJSON([]byte(given)); err != nil {
		return override{}, fmt.Errorf("Invalid config override: %w", err) //nolint:revive // Triton's text
	}
	if len(files) == 0 {
		return o, nil
	}
	if !repository.IsName(name) {
		return override{}, infer.Errorf(infer.InvalidArg, "%q cannot be the name of a model", name)
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(o.config)
	if err != nil {
		return override{}, fmt.Errorf("write the config of the request: %w", err)
	}
	if o.upload, err = r.uploads.Write(files, text); err != nil {
		return override{}, err
	}
	return o, nil
}
