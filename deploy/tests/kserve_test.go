package tests

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// servingRuntime is the part of serving.kserve.io/v1alpha1 that KServe reads. KServe's own
// definitions are not in any registry.
type servingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SupportedModelFormats []struct {
			Name       string  `json:"name"`
			Version    *string `json:"version,omitempty"`
			AutoSelect *bool   `json:"autoSelect,omitempty"`
			Priority   *int32  `json:"priority,omitempty"`
		} `json:"supportedModelFormats"`
		MultiModel       *bool              `json:"multiModel,omitempty"`
		Disabled         *bool              `json:"disabled,omitempty"`
		ProtocolVersions []string           `json:"protocolVersions"`
		Labels           map[string]string  `json:"labels,omitempty"`
		Annotations      map[string]string  `json:"annotations,omitempty"`
		Containers       []corev1.Container `json:"containers"`
		Volumes          []corev1.Volume    `json:"volumes,omitempty"`
	} `json:"spec"`
}

// inferenceService is the part of serving.kserve.io/v1beta1 that the examples use.
type inferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Predictor struct {
			TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds"`
			MinReplicas                   int   `json:"minReplicas,omitempty"`
			MaxReplicas                   int   `json:"maxReplicas,omitempty"`
			Logger                        *struct {
				Mode string `json:"mode"`
				URL  string `json:"url"`
			} `json:"logger,omitempty"`
			AutoScaling struct {
				Metrics []struct {
					Type     string `json:"type"`
					External struct {
						Metric struct {
							Backend       string `json:"backend"`
							ServerAddress string `json:"serverAddress"`
							Query         string `json:"query"`
						} `json:"metric"`
						Target struct {
							Type         string `json:"type"`
							AverageValue string `json:"averageValue"`
						} `json:"target"`
					} `json:"external"`
				} `json:"metrics"`
			} `json:"autoScaling,omitempty"`
			Model struct {
				ModelFormat struct {
					Name    string `json:"name"`
					Version string `json:"version,omitempty"`
				} `json:"modelFormat"`
				Runtime         string                 `json:"runtime"`
				ProtocolVersion string                 `json:"protocolVersion"`
				StorageURI      string                 `json:"storageUri"`
				Ports           []corev1.ContainerPort `json:"ports,omitempty"`
			} `json:"model"`
		} `json:"predictor"`
	} `json:"spec"`
}

// TestRuntimeOfKServe checks the runtime against KServe's rules, and that the built-in runtime for
// Triton keeps its priority.
func TestRuntimeOfKServe(t *testing.T) {
	text, err := os.ReadFile("../kserve/clusterservingruntime.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var runtime servingRuntime
	if err := yaml.UnmarshalStrict(text, &runtime); err != nil {
		t.Fatal(err)
	}
	if got, want := runtime.APIVersion+" "+runtime.Kind, "serving.kserve.io/v1alpha1 ClusterServingRuntime"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !slices.Equal(runtime.Spec.ProtocolVersions, []string{"v2", "grpc-v2"}) {
		t.Errorf("got the protocols %v, want v2 and grpc-v2", runtime.Spec.ProtocolVersions)
	}
	for _, format := range runtime.Spec.SupportedModelFormats {
		if format.Name == "triton" && (format.AutoSelect == nil || *format.AutoSelect) {
			t.Error("it selects itself for triton, with the priority of KServe's own runtime: admission refuses that")
		}
	}
	container := runtime.Spec.Containers[0]
	if len(runtime.Spec.Containers) != 1 || container.Name != "kserve-container" || len(container.Command) > 0 {
		t.Errorf("got %d containers, the first is %s with the command %v; want kserve-container alone, started by its image", len(runtime.Spec.Containers), container.Name, container.Command)
	}
	// KServe's own runtime begins with these arguments, and InferenceServices append theirs.
	want := []string{"tritonserver", "--model-store=/mnt/models", "--http-port=8080", "--grpc-port=9000", "--allow-grpc=true", "--allow-http=true"}
	if got := container.Args; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("got the arguments %v, want them to begin with %v", got, want)
	}
	if first := container.Ports[0]; first.ContainerPort != 8080 || first.Name == "metrics" {
		t.Errorf("the first port is %v, want that of HTTP: it becomes port 80 of the service", first)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/v2/health/live" || probe.HTTPGet.Port.IntValue() != 8080 {
			t.Errorf("got the probe %v, want /v2/health/live at 8080", probe)
		}
	}
	if probe := container.ReadinessProbe; probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/v2/health/ready" {
		t.Errorf("got the readiness probe %v, want /v2/health/ready: the default of KServe is a connection", probe)
	}
}

// TestInferenceServicesUseTheRuntime checks that each example uses the runtime and has a matching
// protocol and a sufficient grace period.
func TestInferenceServicesUseTheRuntime(t *testing.T) {
	text, err := os.ReadFile("../kserve/inferenceservice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples := split(t, "inferenceservice.yaml", text)
	if len(examples) != 4 {
		t.Errorf("got %d examples, want four", len(examples))
	}
	for _, example := range examples {
		var service inferenceService
		if err := yaml.UnmarshalStrict(example.text, &service); err != nil {
			t.Error(err)
			continue
		}
		model := service.Spec.Predictor.Model
		if model.Runtime != "kserve-nereid" || model.ModelFormat.Name != "triton" || !strings.Contains(model.StorageURI, "://") {
			t.Errorf("%s: got %+v", service.Name, model)
		}
		if got := service.Spec.Predictor.TerminationGracePeriodSeconds; got < 10+30+5 {
			t.Errorf("%s: got %d s to end, want 45 at least", service.Name, got)
		}
		grpc := model.ProtocolVersion == "grpc-v2"
		if len(model.Ports) > 0 != grpc || grpc && (model.Ports[0].Name != "h2c" || model.Ports[0].ContainerPort != 9000) {
			t.Errorf("%s: protocol %s with the ports %v", service.Name, model.ProtocolVersion, model.Ports)
		}
	}
}
