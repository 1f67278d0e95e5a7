package server

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// serveInstances serves POST /v2/repository/models/M/instances, which Triton does
// not have: {"count":N} or {"count":N,"group":"G"} gives a group of the model's
// instances another count. The change goes on if the client leaves.
func (h *HTTP) serveInstances(t target, w *reply, r *request) error {
	if t.repository != "" {
		return errRepositoryName
	}
	return h.withJSONBody(w, r, func(v jsonValue, _ *charge) error {
		if !v.isObject() {
			return infer.Errorf(infer.InvalidArg, "want the body {\"count\":<number>,\"group\":<name>}, of which the group may be absent")
		}
		count, err := readCount(v.member("count"))
		if err != nil {
			return err
		}
		group := ""
		if g := v.member("group"); g.exists() {
			text, err := g.str()
			if err != nil {
				return err
			}
			group = text.String()
		}
		list, err := h.core.SetInstances(r.life, t.model, group, count)
		if err != nil {
			return err
		}
		w.send(http.StatusOK, appendInstances(nil, t.model, list))
		return nil
	})
}

func readCount(v jsonValue) (int, error) {
	if !v.exists() {
		return 0, infer.Errorf(infer.InvalidArg, "'count' is missing, want a number of instances")
	}
	n, err := v.unsigned()
	if err != nil || n > models.MaxInstances {
		return 0, infer.Errorf(infer.InvalidArg, "invalid value for 'count': want a number from 1 to %d", models.MaxInstances)
	}
	return int(n), nil
}

// appendInstances appends the JSON of a model's instances.
func appendInstances(b []byte, model string, list []models.InstanceState) []byte {
	b = append(appendJSONString(append(b, `{"name":`...), model), `,"instances":[`...)
	for i, in := range list {
		b = appendComma(b, i)
		b = append(strconv.AppendInt(append(b, `{"version":"`...), in.Version, 10), `","name":`...)
		b = appendJSONString(b, in.Name)
		if in.Draining {
			b = append(b, `,"state":"DRAINING"}`...)
		} else {
			b = append(b, `,"state":"READY"}`...)
		}
	}
	return append(b, "]}"...)
}
