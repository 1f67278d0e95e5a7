package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../helm/nereid"

// variants are sets of values as users write them, in YAML.
var variants = map[string]string{
	"default":              "",
	"volume":               "models: { volume: { persistentVolumeClaim: { claimName: models, readOnly: true } }, subPath: repository }",
	"nfs":                  "models: { volume: { nfs: { server: nfs.example.com, path: /models } } }",
	"image":                "models: { image: { reference: registry.example.com/models:1 }, subPath: models }",
	"git":                  "models: { git: { url: https://example.com/models.git, ref: main, period: 30, existingSecret: git }, subPath: repository }\nserver: { modelControlMode: poll }",
	"git once":             "models: { git: { url: https://example.com/models.git } }",
	"store":                "models: { store: { url: 's3://https://minio:9000/bucket/models', existingSecret: bucket, sizeLimit: 20Gi } }\nserver: { modelControlMode: poll }",
	"store of the account": "models: { store: { url: 'gs://bucket' } }\nextraEnvFrom: [{ configMapRef: { name: more } }]",
	"bucket":               "models: { volume: { emptyDir: {} } }\ninitContainers: [ { name: fetch, image: rclone/rclone, args: [ copy, 's3:models/repository', /models ], envFrom: [ { secretRef: { name: aws } } ], volumeMounts: [ { name: models, mountPath: /models } ] } ]",
	"workload id":          "serviceAccount: { annotations: { iam.gke.io/gcp-service-account: a@b } }",
	"gpu":                  "gpus: 1\nresources: { limits: { memory: 16Gi, cpu: '4' } }\nruntimeClassName: nvidia\ntolerations: [ { key: nvidia.com/gpu, operator: Exists } ]\nstrategy: { type: RollingUpdate, rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } }",
	"hpa":                  "autoscaling: { hpa: { enabled: true, extraMetrics: [ { type: Resource, resource: { name: cpu, target: { type: Utilization, averageUtilization: 80 } } } ] } }\nprometheusAdapter: { enabled: true }",
	"keda":                 "autoscaling: { keda: { enabled: true, fallbackReplicas: 2 } }",
	"keda zero":            "autoscaling: { keda: { enabled: true, minReplicas: 0, extraTriggers: [ { type: prometheus, metadata: { serverAddress: 'http://p', query: 'sum(rate(ingress_requests[1m]))', threshold: '1' } } ] } }",
	"openshift":            "openshift: true",
	"monitoring":           "podMonitor: { enabled: true, labels: { release: prometheus } }\ndashboard: { enabled: true }\nalerts: { enabled: true, extraRules: [ { alert: Mine, expr: 'up == 0' } ] }",
	"service mon":          "serviceMonitor: { enabled: true }",
	"explicit":             "server: { modelControlMode: explicit, loadModels: [ a, b ], strictReadiness: false, exitOnError: false, backendConfig: [ 'python,execute-timeout-seconds=60' ], grpcMaxConnectionAgeMs: 3600000, grpcMaxConnectionAgeGraceMs: 5000, ompThreads: 2, extraArgs: [ --log-verbose=1 ] }",
	"recreate":             "strategy: { type: Recreate }",
	"many pods":            "replicaCount: 3\ntopologySpreadConstraints: [ { maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway } ]\npreStopSleepSeconds: 5",
	"ingress":              "ingress: { enabled: true, className: nginx, httpHost: a.example.com, grpcHost: b.example.com, grpcAnnotations: { nginx.ingress.kubernetes.io/backend-protocol: GRPC } }\nnetworkPolicy: { enabled: true, clients: [ { podSelector: { matchLabels: { app: web } } } ], monitoring: [ { namespaceSelector: { matchLabels: { name: monitoring } } } ] }",
	"overrides":            "extraEnv: [ { name: HOME, value: /scratch }, { name: OMP_NUM_THREADS, value: '3' } ]\nresources: { limits: { cpu: 2 } }\nextraVolumes: [ { name: scratch, emptyDir: {} } ]\nextraVolumeMounts: [ { name: scratch, mountPath: /scratch } ]\npodLabels: { app.kubernetes.io/component: mine }\npodAnnotations: { prometheus.io/scrape: 'false' }\nprobes: { startup: { grpc: { port: 8001 } }, readiness: { exec: { command: [ nereid, health, --ready ] } } }\nnameOverride: '123'\nfullnameOverride: test-nereid",
	"extras": "extraEnv: [ { name: A, value: b } ]\nextraEnvFrom: [ { configMapRef: { name: c } } ]\nextraVolumes: [ { name: v, emptyDir: {} } ]\nextraVolumeMounts: [ { name: v, mountPath: /v } ]\ninitContainers: [ { name: i, image: i } ]\n" +
		"sidecars: [ { name: s, image: s } ]\npodAnnotations: { a: b }\npodLabels: { c: d }\nconfigFiles: { a.json: '{}' }\nnodeSelector: { gpu: 'true' }\npriorityClassName: high\nimagePullSecrets: [ { name: pull } ]\nimage: { digest: 'sha256:" + strings64 + "' }\nscrapeAnnotations: false\nsharedMemorySizeLimit: ''\nservice: { headless: false }\npodDisruptionBudget: { enabled: false }",
}

const strings64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestChartRenders renders each variant and validates it with Helm's linter and with the schemas of
// Kubernetes and of the custom resources.
func TestChartRenders(t *testing.T) {
	check := schemas(t)
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, variants[name])
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				check(t, object)
			}
			linted := lint.AllWithKubeVersion(chartFolder, values(t, variants[name]), "default", &chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"})
			for _, message := range linted.Messages {
				if message.Severity >= support.WarningSev {
					t.Errorf("helm lint: %s", message)
				}
			}
			consistent(t, objects)
		})
	}
}

// consistent checks rules that no schema can express.
func consistent(t *testing.T, objects []object) {
	t.Helper()
	autoscaled := find(objects, "HorizontalPodAutoscaler") != nil || find(objects, "ScaledObject") != nil
	deployment := find(objects, "Deployment")
	spec := deployment.fields["spec"].(map[string]any)
	if _, fixed := spec["replicas"]; fixed == autoscaled {
		t.Errorf("replicas are fixed: %t, and there is an autoscaler: %t; want one of both", fixed, autoscaled)
	}
	selector := at(spec, "selector", "matchLabels").(map[string]any)
	if got := slices.Sorted(maps.Keys(selector)); !slices.Equal(got, []string{"app.kubernetes.io/instance", "app.kubernetes.io/name"}) {
		t.Errorf("the selector, which cannot be changed later, has %v", got)
	}
	labels := at(spec, "template", "metadata", "labels").(map[string]any)
	for key, value := range selector {
		if labels[key] != value {
			t.Errorf("the selector wants %s=%v, and pods have %v", key, value, labels[key])
		}
	}
	if test := find(objects, "Pod"); at(test.fields, "metadata", "labels", "app.kubernetes.io/name") == selector["app.kubernetes.io/name"] {
		t.Error("autoscalers and the disruption budget take the pod of helm test for a server: the selector finds it")
	}
	if kind := at(spec, "strategy", "type"); kind == "Recreate" && at(spec, "strategy", "rollingUpdate") != nil {
		t.Error("the strategy Recreate has settings of a rolling update, which the API refuses")
	}
	pod := at(spec, "template", "spec").(map[string]any)
	volumes := map[string]bool{}
	for _, volume := range pod["volumes"].([]any) {
		volumes[volume.(map[string]any)["name"].(string)] = true
	}
	for _, argument := range list(pod["containers"])[0]["args"].([]any) {
		if _, number, _ := strings.Cut(argument.(string), "="); strings.Contains(number, "e+") {
			t.Errorf("%v: no flag reads such a number", argument)
		}
	}
	all := slices.Concat(list(pod["containers"]), list(pod["initContainers"]))
	for _, container := range all {
		for _, mount := range list(container["volumeMounts"]) {
			if !volumes[mount["name"].(string)] {
				t.Errorf("container %v mounts the volume %v, which is not there", container["name"], mount["name"])
			}
		}
		if slices.Contains([]any{"s", "i", "rclone/rclone"}, container["image"]) { // containers from the values
			continue
		}
		security, _ := container["securityContext"].(map[string]any)
		for key, want := range map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}, "readOnlyRootFilesystem": true} {
			if !reflect.DeepEqual(security[key], want) {
				t.Errorf("container %v has %s %v in its security context, want %v", container["name"], key, security[key], want)
			}
		}
		// The API rejects duplicate keys.
		for of, key := range map[string]string{"env": "name", "volumeMounts": "mountPath", "ports": "containerPort"} {
			once := map[any]bool{}
			for _, entry := range list(container[of]) {
				if once[entry[key]] {
					t.Errorf("container %v has %v twice in %s", container["name"], entry[key], of)
				}
				once[entry[key]] = true
			}
		}
	}
	if autoscaler := find(objects, "HorizontalPodAutoscaler"); autoscaler != nil && at(autoscaler.fields, "spec", "scaleTargetRef", "name") != deployment.name {
		t.Errorf("the autoscaler scales %v, want %s", at(autoscaler.fields, "spec", "scaleTargetRef", "name"), deployment.name)
	}
}

// TestValuesThatContradict checks that invalid and contradictory values are rejected.
func TestValuesThatContradict(t *testing.T) {
	for _, test := range []struct{ values, want string }{
		{"autoscaling: { hpa: { enabled: true }, keda: { enabled: true } }", "autoscaling.hpa and autoscaling.keda are both enabled"},
		{"models: { volume: { emptyDir: {} }, git: { url: 'https://a' } }", "models has volume and git, want at most one"},
		{"terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds is 30, want 0 or at least 45"},
		{"autoscaling: { keda: { enabled: true, minReplicas: 0 } }", "want a trigger that counts requests while there is no pod"},
		{"podMonitor: { enabled: true }\nserviceMonitor: { enabled: true }", "every series would be there twice"},
		{"replicas: 3", "replicas"},
		{"server: { modelControlMode: manual }", "modelControlMode"},
		{"models: { cloud: { url: 's3://bucket' } }", "cloud"},
		{"models: { store: { url: 'https://bucket' } }", "url"},
		{"models: { volume: { emptyDir: {} }, store: { url: 's3://bucket' } }", "models has volume and store, want at most one"},
		{"ports: { http: http }", "http"},
		{"image: nereid:2", "image"},
		{"probes: { startup: { failureTreshold: 3 } }", "failureTreshold"},
		{"probes: { liveness: { failureThreshold: 0 } }", "failureThreshold"},
		{"sharedMemorySizeLimit: 1 GB", "sharedMemorySizeLimit"},
		{"podMonitor: { interval: '15' }", "interval"},
		{"autoscaling: { hpa: { enabled: true, minReplicas: 5 } }", "autoscaling.hpa.minReplicas is 5, want at most autoscaling.hpa.maxReplicas, which is 4"},
		{"autoscaling: { keda: { enabled: true, maxReplicas: 2, minReplicas: 3 } }", "autoscaling.keda.minReplicas is 3, want at most"},
		{"autoscaling: { hpa: { busyShare: much } }", "busyShare"},
		{"autoscaling: { hpa: { averageValue: 0 } }", "averageValue"},
		{"server: { extraArgs: [ --exit-timeout-secs=120 ] }", "server.extraArgs has --exit-timeout-secs=120, want the value server.exitTimeoutSeconds"},
		{"server: { extraArgs: [ --http-port, '80' ] }", "want the value ports.http"},
		{"podLabels: { app.kubernetes.io/name: mine }", "podLabels has app.kubernetes.io/name, want other labels"},
		{"ingress: { enabled: true }", "ingress.enabled is true without a host"},
		{"models: { path: 'C:/models' }", "path"},
		{"fullnameOverride: My_Server", "fullnameOverride"},
	} {
		if _, err := render(t, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one that says %q", test.values, err, test.want)
		}
	}
}

// TestGraceIsLongEnough checks that the pod's termination grace period covers all steps of its
// shutdown.
func TestGraceIsLongEnough(t *testing.T) {
	for values, want := range map[string]float64{
		"": 60, "terminationGracePeriodSeconds: 90": 90, "server: { exitTimeoutSeconds: 120 }": 135, "server: { exitDelaySeconds: 20 }\npreStopSleepSeconds: 15": 70,
	} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		if got := at(find(objects, "Deployment").fields, "spec", "template", "spec", "terminationGracePeriodSeconds"); got != want {
			t.Errorf("%s: got %v seconds, want %v", values, got, want)
		}
	}
}

// TestDashboardIsACopyOfTheServers checks that the chart's dashboard is the same file as
// docs/dashboard.json.
func TestDashboardIsACopyOfTheServers(t *testing.T) {
	chart, err := os.ReadFile(chartFolder + "/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(chart) != string(docs) {
		t.Error("deploy/helm/nereid/files/dashboard.json differs from docs/dashboard.json: copy it")
	}
	objects, err := render(t, variants["monitoring"])
	if err != nil {
		t.Fatal(err)
	}
	var board map[string]any
	for _, object := range objects {
		if text, ok := at(object.fields, "data", "nereid.json").(string); ok {
			if err := json.Unmarshal([]byte(text), &board); err != nil {
				t.Error(err)
			}
		}
	}
	if board["panels"] == nil {
		t.Error("the ConfigMap has no dashboard")
	}
}

// object is one rendered Kubernetes object.
type object struct {
	kind, name string
	text       []byte
	fields     map[string]any
}

func find(objects []object, kind string) *object {
	for i := range objects {
		if objects[i].kind == kind {
			return &objects[i]
		}
	}
	return nil
}

// at returns the value at a path of keys, or nil.
func at(value any, keys ...string) any {
	for _, key := range keys {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

func list(value any) (maps []map[string]any) {
	entries, _ := value.([]any)
	for _, entry := range entries {
		maps = append(maps, entry.(map[string]any))
	}
	return maps
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	read := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// render renders the chart as `helm template test` does.
func render(t *testing.T, text string) ([]object, error) {
	t.Helper()
	return renderAs(t, "test", text)
}

// renderAs renders the chart for a release with the given name.
func renderAs(t *testing.T, release, text string) ([]object, error) {
	t.Helper()
	var loaded *chart.Chart
	loaded, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"}
	rendered, err := chartutil.ToRenderValues(loaded, values(t, text), chartutil.ReleaseOptions{Name: release, Namespace: "serving", IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, rendered)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".txt" {
			if strings.Contains(files[name], "<no value>") {
				t.Errorf("%s:\n%s", name, files[name])
			}
			continue
		}
		objects = append(objects, split(t, name, []byte(files[name]))...)
	}
	return objects, nil
}

// split parses the objects of a YAML file.
func split(t *testing.T, name string, text []byte) (objects []object) {
	t.Helper()
	for _, part := range strings.Split("\n"+string(text), "\n---") {
		fields := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(part), &fields); err != nil {
			t.Errorf("%s: %v\n%s", name, err, part)
			continue
		}
		if len(fields) == 0 {
			continue
		}
		objects = append(objects, object{kind: fmt.Sprint(fields["kind"]), name: fmt.Sprint(at(fields, "metadata", "name")), text: []byte(part), fields: fields})
	}
	return objects
}

// schemas returns a function that validates an object against the schema of its kind. Unknown
// fields are errors.
func schemas(t *testing.T) func(*testing.T, object) {
	t.Helper()
	folder := os.Getenv("NEREID_KUBERNETES_SCHEMAS")
	if folder == "" {
		t.Skip("NEREID_KUBERNETES_SCHEMAS is not set: make charts fetches the schemas of Kubernetes")
	}
	locations := []string{filepath.Join(folder, "{{ .ResourceKind }}{{ .KindSuffix }}.json")}
	conform, err := validator.New(locations, validator.Opts{Strict: true, KubernetesVersion: "1.33.0"})
	if err != nil {
		t.Fatal(err)
	}
	wrong := resource.Resource{Path: "wrong", Bytes: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\ndatum: {}\n")}
	if result := conform.ValidateResource(wrong); result.Status != validator.Invalid {
		t.Fatalf("an object with an unknown field: got %v and %v, want it refused", result.Status, result.Err)
	}
	return func(t *testing.T, o object) {
		t.Helper()
		if strings.HasPrefix(fmt.Sprint(o.fields["apiVersion"]), "monitoring.coreos.com/") {
			monitoring(t, o)
			return
		}
		if result := conform.ValidateResource(resource.Resource{Path: o.kind, Bytes: o.text}); result.Status != validator.Valid {
			t.Errorf("%s %s: %v\n%s", o.kind, o.name, result.Err, o.text)
		}
	}
}
