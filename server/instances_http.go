package server

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// wantInstances is the body of a request for another number of instances.
const wantInstances = `{"count":<number>,"group":<name>}, of which the group may be absent`

// serveInstances serves POST /v2/repository/models/M/instances, which Triton does
// not have: {"count":N} or {"count":N,"group":"G"} gives a group of the model's
// instances another count. The change goes on if the client leaves.
func (h *HTTP) serveInstances(t target, w *http1.Reply, r *http1.Request) error {
	if t.repository != "" {
		return ErrRepositoryName
	}
	var group string
	var count int
	err := h.withBody(r, func(body []byte, _ *memory.Charge) (err error) {
		group, count, err = readInstances(t.model, body)
		return err
	})
	if err != nil {
		return err
	}
	list, err := h.core.SetInstances(r.Lifetime(), t.model, group, count)
	if err != nil {
		return err
	}
	w.Send(http.StatusOK, appendInstances(nil, t.model, list))
	return nil
}

// readInstances reads the body of such a request strictly: what is not known
// might be what was meant. An absent group is empty.
func readInstances(model string, body []byte) (group string, count int, err error) {
	refuse := func(format string, args ...any) (string, int, error) {
		return "", 0, infer.Errorf(infer.InvalidArg, "instances of model '%s': "+format, append([]any{model}, args...)...)
	}
	if len(body) == 0 {
		return refuse("the body is empty, want %s", wantInstances)
	}
	text, err := new(jsontext.Scanner).Scan(body)
	if err != nil {
		return refuse("the body is no JSON: %v; want %s", err, wantInstances)
	}
	v := text.Root()
	if !v.IsObject() {
		return refuse("the body is %s, want %s", v.Brief(), wantInstances)
	}
	seen := map[string]bool{}
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			break
		}
		key := name.String()
		switch {
		case key != "count" && key != "group":
			return refuse("'%s' is not known, want 'count' and 'group'", jsontext.Brief([]byte(key)))
		case seen[key]:
			return refuse("'%s' is there twice, want it once", key)
		case key == "count":
			n, err := value.Uint()
			if err != nil || n < 1 || n > models.MaxInstances {
				return refuse("'count' is %s, want a whole number from 1 to %d", value.Brief(), models.MaxInstances)
			}
			count = int(n)
		default:
			text, err := value.Text()
			if group = text.String(); err != nil || group == "" {
				return refuse("'group' is %s, want the name of an instance group", value.Brief())
			}
		}
		seen[key] = true
	}
	if !seen["count"] {
		return refuse("'count' is missing, want a whole number from 1 to %d", models.MaxInstances)
	}
	return group, count, nil
}

// appendInstances appends the JSON of a model's instances.
func appendInstances(b []byte, model string, list []models.InstanceState) []byte {
	b = append(jsontext.AppendString(append(b, `{"name":`...), model), `,"instances":[`...)
	for i, in := range list {
		b = appendComma(b, i)
		b = append(strconv.AppendInt(append(b, `{"version":"`...), in.Version, 10), `","name":`...)
		b = jsontext.AppendString(b, in.Name)
		if in.Draining {
			b = append(b, `,"state":"DRAINING"}`...)
		} else {
			b = append(b, `,"state":"READY"}`...)
		}
	}
	return append(b, "]}"...)
}
