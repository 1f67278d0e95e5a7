package tests

import (
	"regexp"
	"strings"
	"testing"
)

var (
	serviceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	objectName  = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
	labelValue  = regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`)
)

// podOf returns the name of a pod of a Deployment: Kubernetes keeps 58 characters of the
// ReplicaSet's name and appends five.
func podOf(deployment string) string {
	generated := deployment + "-7c9d86bd54-"
	return generated[:min(len(generated), 58)] + "x2bqz"
}

// TestNamesFit renders the chart with release names and overrides of various lengths. Names and
// labels must be valid, and the autoscaler's queries must match only the pods of this Deployment.
func TestNamesFit(t *testing.T) {
	check := schemas(t)
	long := strings.Repeat("abcdefghi-", 7)
	const all = "autoscaling: { keda: { enabled: true } }\npodMonitor: { enabled: true }\ndashboard: { enabled: true }\nalerts: { enabled: true }\nprometheusAdapter: { enabled: true }\nnetworkPolicy: { enabled: true, clients: [ { podSelector: {} } ] }\n" +
		"ingress: { enabled: true, httpHost: a.example.com, grpcHost: b.example.com }\nconfigFiles: { a: b }\nreplicaCount: 2\nserviceAccount: { annotations: { a: b } }\n"
	for _, test := range []struct{ release, values string }{
		{"a", ""}, {"v1.2.3", ""}, {"true", "nameOverride: null"}, {"nereid", ""}, {"e1", "nameOverride: '3'"}, {long[:53], ""}, {long[:49], ""}, {long[:46], ""},
		{"a", "nameOverride: " + long[:63]}, {"a", "nameOverride: '" + strings.Repeat("1", 63) + "'"}, {"a", "fullnameOverride: " + long[:63]}, {"a", "fullnameOverride: " + long[:58]}, {"a", "fullnameOverride: " + long[:57]},
		{"a", "fullnameOverride: " + long[:47]}, {"a", "fullnameOverride: " + long[:44]}, {long[:53], "nameOverride: " + long[:63]}, {long[:39], "nameOverride: " + strings.Repeat("b", 63)},
	} {
		objects, err := renderAs(t, test.release, all+test.values)
		if err != nil {
			t.Errorf("release %s, %s: %v", test.release, test.values, err)
			continue
		}
		for _, o := range objects {
			check(t, o)
			valid := objectName
			if o.kind == "Service" || o.kind == "Pod" {
				valid = serviceName
			}
			if !valid.MatchString(o.name) {
				t.Errorf("release %s, %s: the %s is called %q", test.release, test.values, o.kind, o.name)
			}
			for key, value := range at(o.fields, "metadata", "labels").(map[string]any) {
				if text, ok := value.(string); !ok || !labelValue.MatchString(text) {
					t.Errorf("release %s, %s: %s %s has the label %s=%v", test.release, test.values, o.kind, o.name, key, value)
				}
			}
		}
		consistent(t, objects)
		deployment := find(objects, "Deployment").name
		for i, trigger := range list(at(find(objects, "ScaledObject").fields, "spec", "triggers")) {
			query := at(trigger, "metadata", "query").(string)
			for _, found := range regexp.MustCompile(`pod=~"([^"]*)"`).FindAllStringSubmatch(query, -1) {
				pods := regexp.MustCompile("^(?:" + found[1] + ")$")
				if !pods.MatchString(podOf(deployment)) {
					t.Errorf("trigger %d looks for pods %s, and there is %s", i, found[1], podOf(deployment))
				}
				// Pod names contain a Deployment name of up to 46 characters in full.
				if other := deployment + "-b"; len(other) <= 46 && (pods.MatchString(podOf(other)) || pods.MatchString(podOf(deployment+"b"))) {
					t.Errorf("trigger %d looks for pods %s, and finds %s of another release", i, found[1], podOf(other))
				}
			}
		}
	}
	if _, err := renderAs(t, "1st", ""); err == nil || !strings.Contains(err.Error(), "want a name that begins with a letter") {
		t.Errorf("a release called 1st: got error %v", err)
	}
	if _, err := renderAs(t, "1st", "fullnameOverride: first"); err != nil {
		t.Error(err)
	}
}
