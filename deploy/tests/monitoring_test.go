package tests

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// monitoring decodes an object of the Prometheus operator into its type. Unknown fields are errors.
func monitoring(t *testing.T, o object) {
	t.Helper()
	into := map[string]any{
		"PodMonitor": &monitoringv1.PodMonitor{}, "ServiceMonitor": &monitoringv1.ServiceMonitor{}, "PrometheusRule": &monitoringv1.PrometheusRule{},
	}[o.kind]
	if into == nil {
		t.Errorf("the Prometheus operator has no %s", o.kind)
		return
	}
	if err := yaml.UnmarshalStrict(o.text, into); err != nil {
		t.Errorf("%s %s: %v\n%s", o.kind, o.name, err, o.text)
	}
}
