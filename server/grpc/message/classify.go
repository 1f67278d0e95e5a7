package message

import (
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

// ClassesCost returns an upper bound of the memory that Classify needs.
func ClassesCost(r *infer.Response, classes []Classes, info *models.Info) (n int64) {
	for _, want := range classes {
		for i := range r.Outputs {
			if out := &r.Outputs[i]; out.Name == want.Output {
				n += server.ClassesCost(out, want.Count, info.Config.GetMaxBatchSize() > 0, info.Labels[out.Name])
			}
		}
	}
	return n
}

// Classify replaces the outputs that the client wants as classes. The new tensors are charged to c.
func Classify(c *budget.Charge, r *infer.Response, classes []Classes, info *models.Info) error {
	for _, want := range classes {
		for i := range r.Outputs {
			out := &r.Outputs[i]
			if out.Name != want.Output {
				continue
			}
			t, err := server.Classify(c, out, want.Count, info.Config.GetMaxBatchSize() > 0, info.Labels[out.Name])
			if err != nil {
				return err
			}
			out.Release()
			*out = t
		}
	}
	return nil
}
