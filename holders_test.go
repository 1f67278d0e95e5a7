package nereid_test

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/status"
)

// keepingModel keeps the input of its first request.
const keepingModel = `
import triton_python_backend_utils as pb_utils

kept = []


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        if not kept:
            kept.extend(arrays)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", a[:1])]) for a in arrays]
`

// TestHeldMemoryIsShown checks that the status, the metrics and the page name the process that
// holds most memory, with its bytes.
func TestHeldMemoryIsShown(t *testing.T) {
	const elements = 500_000 // of 4 bytes
	o := options(t, repository(t, keepingModel))
	o.Page.Allow = true
	s, _, _ := serve(t, o)
	body := fmt.Sprintf(`{"inputs":[{"name":"X","datatype":"INT32","shape":[%d],"data":[%s1]}]}`, elements, strings.Repeat("1,", elements-1))
	if code, text := request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/infer", body); code != 200 {
		t.Fatalf("got status %d, %s", code, text)
	}
	metrics := "http://" + s.MetricsAddr().String()
	var holder status.Holder
	testkit.Eventually(t, 10*time.Second, func() bool { // other memory of the request is returned after its response
		_, text := request(t, metrics+"/status", "")
		var now status.Snapshot
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			t.Fatal(err)
		}
		if len(now.Server.Holders) != 1 {
			return false
		}
		holder = now.Server.Holders[0]
		return maps.Equal(now.Versions[0].Instances[0].Memory, map[string]int64{"blocks": holder.Bytes})
	})
	if want := `model "double" version 1 instance double_0_0`; holder.Name != want || holder.Bytes < 4*elements {
		t.Errorf("the largest holder is %+v, want %s with %d bytes at least", holder, want, 4*elements)
	}
	_, text := request(t, metrics+"/metrics", "")
	figure := func(name string) float64 {
		match := regexp.MustCompile(`(?m)^` + name + `\{kind="blocks",model="double",version="1"\} (\S+)$`).FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("there is no metric %s of the model", name)
		}
		n, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if held, limit := figure("nereid_model_memory_bytes"), figure("nereid_model_memory_limit_bytes"); held != float64(holder.Bytes) || limit < held {
		t.Errorf("the metrics have %.0f bytes and the limit %.0f, where %d bytes are held", held, limit, holder.Bytes)
	}
	_, text = request(t, "http://"+s.PageAddr().String()+"/", "")
	if text = html.UnescapeString(text); !strings.Contains(text, "Largest holder") || !strings.Contains(text, holder.Name) {
		t.Errorf("the page does not name the largest holder: %s", text)
	}
}
