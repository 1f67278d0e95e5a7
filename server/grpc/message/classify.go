package message

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

// Classify replaces the outputs that are wanted as classes.
func Classify(r *infer.Response, classes []Classes, info *models.Info) error {
	for _, want := range classes {
		for i := range r.Outputs {
			out := &r.Outputs[i]
			if out.Name != want.Output {
				continue
			}
			t, err := server.Classify(nil, out, want.Count, info.Config.GetMaxBatchSize() > 0, info.Labels[out.Name])
			if err != nil {
				return err
			}
			out.Release()
			*out = t
		}
	}
	return nil
}
