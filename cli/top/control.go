package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/nereid-serving/nereid/cli/client"
)

// act is a change of a model that the user has confirmed.
type act struct {
	what  string // load, unload or instances
	model string
	group string // of instances; "": the only group
	count int
}

// outcome is the result of an act.
type outcome struct {
	text string
	err  error
}

// perform executes an act and returns when the server has finished it.
func perform(ctx context.Context, at *client.Endpoint, a act) outcome {
	server := *at
	server.Limit = controlLimit
	path := "/v2/repository/models/" + url.PathEscape(a.model)
	switch a.what {
	case "load":
		_, err := server.Ask(ctx, http.MethodPost, path+"/load", nil)
		return outcome{"loaded " + a.model, err}
	case "unload":
		_, err := server.Ask(ctx, http.MethodPost, path+"/unload", nil)
		return outcome{"unloaded " + a.model, err}
	}
	done := fmt.Sprintf("%s has %d instances", a.model, a.count)
	body, err := json.Marshal(map[string]any{"count": a.count, "group": a.group})
	if a.group == "" {
		body, err = json.Marshal(map[string]any{"count": a.count})
	}
	if err != nil {
		return outcome{err: err}
	}
	_, err = server.Ask(ctx, http.MethodPost, path+"/instances", body)
	var refused *client.Refusal
	if errors.As(err, &refused) && (refused.Text == "" || refused.Text == "Not Found") {
		err = override(ctx, &server, a) // a Triton, which returns only this for unknown paths
	}
	return outcome{done, err}
}

// override loads a model with its configuration and another count, on servers without the instances
// endpoint.
func override(ctx context.Context, server *client.Endpoint, a act) error {
	text, err := server.Ask(ctx, http.MethodGet, "/v2/models/"+url.PathEscape(a.model)+"/config", nil)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := decode(text, &config, maxElements); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	groups, _ := config["instance_group"].([]any)
	if len(groups) != 1 {
		return fmt.Errorf("the model has %d instance groups, want one", len(groups))
	}
	group, ok := groups[0].(map[string]any)
	if !ok {
		return errors.New("the instance group of the model is not an object")
	}
	group["count"] = a.count
	changed, err := json.Marshal(config)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"parameters": map[string]any{"config": string(changed)}})
	if err != nil {
		return err
	}
	_, err = server.Ask(ctx, http.MethodPost, "/v2/repository/models/"+url.PathEscape(a.model)+"/load", body)
	return err
}

// question is asked before an action. The answer is a text or y.
type question struct {
	prompt string
	text   bool
	typed  string
	answer func(u *ui, typed string) *act // nil: nothing is to be done
}

// confirm asks whether to do something.
func confirm(prompt string, a act) *question {
	return &question{prompt: prompt + " [y/N] ", answer: func(*ui, string) *act { return &a }}
}

// askCount asks for the new number of instances of a model, and then for confirmation.
func askCount(r *Row) *question {
	group, now := "", ""
	switch len(r.Groups) {
	case 0:
	case 1:
		now = fmt.Sprintf(" (now %d)", r.Groups[0].Count)
	default: // the first
		group, now = r.Groups[0].Name, fmt.Sprintf(" in its group %s (now %d)", r.Groups[0].Name, r.Groups[0].Count)
	}
	return &question{prompt: fmt.Sprintf("instances of %s%s: ", r.Model, now), text: true, answer: func(u *ui, typed string) *act {
		n, err := strconv.Atoi(typed)
		if err != nil || n < 1 {
			u.tell(true, "got %q, want a number of instances, 1 or more", typed)
			return nil
		}
		u.ask = confirm(fmt.Sprintf("give %s %d instances?", r.Model, n), act{what: "instances", model: r.Model, group: group, count: n})
		return nil
	}}
}

// tell shows a message.
func (u *ui) tell(wrong bool, format string, args ...any) {
	u.message, u.wrong = clean(fmt.Sprintf(format, args...)), wrong
}
