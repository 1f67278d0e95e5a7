package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

// unusual maps each value of the chart to a setting that YAML, Helm or Kubernetes could misread,
// and to the other values that the setting needs to have an effect.
var unusual = map[string]struct{ value, with string }{
	"replicaCount":                         {"1000000", ""},
	"image.repository":                     {"'registry.example.com:5000/team/nereid'", ""},
	"image.tag":                            {"'1.10'", ""},
	"image.digest":                         {"'sha256:" + strings64 + "'", "image: { tag: '2' }"},
	"image.pullPolicy":                     {"Never", ""},
	"imagePullSecrets":                     {"[ { name: '123' } ]", ""},
	"nameOverride":                         {"'123'", "fullnameOverride: a"},
	"fullnameOverride":                     {"'true'", ""},
	"models.path":                          {"'/my models #1'", ""},
	"models.subPath":                       {"'2024'", "models: { volume: { emptyDir: {} } }"},
	"models.volume":                        {"{ csi: { driver: a.example.com, readOnly: true } }", ""},
	"models.store.url":                     {"'s3://https://host:443/bucket/a/b'", ""},
	"models.store.existingSecret":          {"'123'", "models: { store: { url: 's3://b' } }"},
	"models.store.sizeLimit":               {"'1000000'", "models: { store: { url: 's3://b' } }"},
	"models.image.reference":               {"'123'", ""},
	"models.image.pullPolicy":              {"Always", "models: { image: { reference: a } }"},
	"models.git.url":                       {"'git@example.com:a/b #c.git'", ""},
	"models.git.ref":                       {"'1e3'", "models: { git: { url: 'https://a' } }"},
	"models.git.period":                    {"1000000", "models: { git: { url: 'https://a' } }"},
	"models.git.image":                     {"'123'", "models: { git: { url: 'https://a' } }"},
	"models.git.existingSecret":            {"'1e3'", "models: { git: { url: 'https://a' } }"},
	"server.modelControlMode":              {"explicit", ""},
	"server.repositoryPollSeconds":         {"1000000", "server: { modelControlMode: poll }"},
	"server.loadModels":                    {"[ 'a: b', '*', '\"q\"', '123' ]", "server: { modelControlMode: explicit }"},
	"server.exitOnError":                   {"false", ""},
	"server.strictReadiness":               {"false", ""},
	"server.exitDelaySeconds":              {"1000000", ""},
	"server.exitTimeoutSeconds":            {"1000000", ""},
	"server.logVerbose":                    {"1000000", ""},
	"server.logFormat":                     {"ISO8601", ""},
	"server.backendConfig":                 {"[ 'python,python-executable=/a b: #c' ]", ""},
	"server.grpcMaxConnectionAgeMs":        {"1000000000", ""},
	"server.grpcMaxConnectionAgeGraceMs":   {"1000000000", ""},
	"server.ompThreads":                    {"1000000", ""},
	"server.flags":                         {"{ http-max-connections: 1000000, strict-outputs: true, record: '/tmp/a: #b' }", ""},
	"server.extraArgs":                     {"[ '--log-file=/tmp/a: #b', '--log-info=true' ]", ""},
	"ports.http":                           {"65535", ""},
	"ports.grpc":                           {"65534", ""},
	"ports.metrics":                        {"65533", ""},
	"service.type":                         {"LoadBalancer", ""},
	"service.annotations":                  {"{ a: 'true', b: '1' }", ""},
	"service.headless":                     {"false", ""},
	"resources":                            {"{ limits: { cpu: 1, memory: 1000000000, amd.com/gpu: 2 }, requests: { cpu: 0.5 } }", ""},
	"gpus":                                 {"2", "resources: { limits: { memory: 1Gi } }"},
	"probes.startup":                       {"{ grpc: { port: 8001 }, failureThreshold: 1000000 }", ""},
	"probes.readiness":                     {"{ exec: { command: [ nereid, health, --ready ] } }", ""},
	"probes.liveness":                      {"{ httpGet: { scheme: HTTPS }, terminationGracePeriodSeconds: 5 }", ""},
	"preStopSleepSeconds":                  {"1000000", ""},
	"terminationGracePeriodSeconds":        {"1000000", ""},
	"strategy":                             {"{ rollingUpdate: { maxSurge: 25%, maxUnavailable: 1 } }", ""},
	"sharedMemorySizeLimit":                {"'1e9'", ""},
	"tmpSizeLimit":                         {"'1000000'", ""},
	"podSecurityContext":                   {"{ runAsUser: 1000000000, supplementalGroups: [ 1000000 ], fsGroup: null }", ""},
	"securityContext":                      {"{ readOnlyRootFilesystem: false, runAsUser: 1000000000 }", ""},
	"openshift":                            {"true", ""},
	"serviceAccount.create":                {"false", ""},
	"serviceAccount.name":                  {"'123'", ""},
	"serviceAccount.annotations":           {"{ eks.amazonaws.com/role-arn: 'arn:aws:iam::1:role/a' }", ""},
	"autoscaling.hpa.enabled":              {"true", ""},
	"autoscaling.hpa.minReplicas":          {"2", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.maxReplicas":          {"1000000", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.metric":               {"nereid_queue_time_us", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.averageValue":         {"'1e3'", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.busyShare":            {"''", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.extraMetrics":         {"[ { type: Resource, resource: { name: cpu, target: { type: Utilization, averageUtilization: 80 } } } ]", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.hpa.behavior":             {"{ scaleDown: { selectPolicy: Disabled } }", "autoscaling: { hpa: { enabled: true } }"},
	"autoscaling.keda.enabled":             {"true", ""},
	"autoscaling.keda.minReplicas":         {"2", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.maxReplicas":         {"1000000", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.pollingInterval":     {"1000000", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.cooldownPeriod":      {"1000000", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.prometheusAddress":   {"'https://a:1/b?c=d#e'", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.query":               {"'sum(a{b=\"c\"}) # d'", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.threshold":           {"'1000000'", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.busyShare":           {"''", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.activationThreshold": {"'1000000'", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.extraTriggers":       {"[ { type: cpu, metricType: Utilization, metadata: { value: '80' } } ]", "autoscaling: { keda: { enabled: true } }"},
	"autoscaling.keda.fallbackReplicas":    {"1000000", "autoscaling: { keda: { enabled: true } }"},
	"prometheusAdapter.enabled":            {"true", ""},
	"podMonitor.enabled":                   {"true", ""},
	"podMonitor.labels":                    {"{ release: '123', app.kubernetes.io/component: monitor }", "podMonitor: { enabled: true }"},
	"podMonitor.interval":                  {"1m30s", "podMonitor: { enabled: true }"},
	"serviceMonitor.enabled":               {"true", ""},
	"serviceMonitor.labels":                {"{ release: 'true', app.kubernetes.io/component: monitor }", "serviceMonitor: { enabled: true }"},
	"serviceMonitor.interval":              {"1m30s", "serviceMonitor: { enabled: true }"},
	"scrapeAnnotations":                    {"false", ""},
	"dashboard.enabled":                    {"true", ""},
	"dashboard.labels":                     {"{ grafana_dashboard: 'true', app.kubernetes.io/component: dashboard }", "dashboard: { enabled: true }"},
	"dashboard.annotations":                {"{ k8s-sidecar-target-directory: '123' }", "dashboard: { enabled: true }"},
	"alerts.enabled":                       {"true", ""},
	"alerts.labels":                        {"{ release: '123', app.kubernetes.io/component: alerts }", "alerts: { enabled: true }"},
	"alerts.extraRules":                    {"[ { alert: A, expr: 'a > 1', for: 1m, annotations: { summary: '{{ $labels.pod }}: \"b\" #c' } } ]", "alerts: { enabled: true }"},
	"podDisruptionBudget.enabled":          {"false", "replicaCount: 2"},
	"podDisruptionBudget.maxUnavailable":   {"'50%'", "replicaCount: 2"},
	"topologySpreadConstraints":            {"[ { maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: { matchLabels: { mine: '1' } } } ]", ""},
	"ingress.enabled":                      {"true", "ingress: { httpHost: a.example.com }"},
	"ingress.className":                    {"'123'", "ingress: { enabled: true, httpHost: a.example.com }"},
	"ingress.annotations":                  {"{ a: 'true' }", "ingress: { enabled: true, httpHost: a.example.com }"},
	"ingress.httpHost":                     {"'*.example.com'", "ingress: { enabled: true, grpcHost: a.example.com }"},
	"ingress.grpcHost":                     {"'*.example.com'", "ingress: { enabled: true, httpHost: a.example.com }"},
	"ingress.grpcAnnotations":              {"{ a: 'true' }", "ingress: { enabled: true, grpcHost: a.example.com }"},
	"ingress.tls":                          {"[ { hosts: [ '*.example.com' ], secretName: '123' } ]", "ingress: { enabled: true, httpHost: a.example.com }"},
	"networkPolicy.enabled":                {"true", ""},
	"networkPolicy.clients":                {"[ { ipBlock: { cidr: 10.0.0.0/8 } } ]", "networkPolicy: { enabled: true }"},
	"networkPolicy.monitoring":             {"[ { namespaceSelector: {} } ]", "networkPolicy: { enabled: true }"},
	"extraEnv":                             {"[ { name: HOME, value: '1e3' }, { name: OMP_NUM_THREADS, value: '3' }, { name: TRITON_AWS_MOUNT_DIRECTORY, value: /x } ]", "resources: { limits: { cpu: 2 } }\nmodels: { store: { url: 's3://b' } }"},
	"extraEnvFrom":                         {"[ { prefix: A_, secretRef: { name: '123', optional: true } } ]", ""},
	"extraVolumes":                         {"[ { name: more, hostPath: { path: /dev } } ]", ""},
	"extraVolumeMounts":                    {"[ { name: tmp, mountPath: /var/cache, subPath: '1' } ]", ""},
	"initContainers":                       {"[ { name: i, image: i, restartPolicy: Always } ]", ""},
	"sidecars":                             {"[ { name: s, image: s } ]", ""},
	"podAnnotations":                       {"{ prometheus.io/scrape: 'false', a: '123' }", ""},
	"podLabels":                            {"{ app.kubernetes.io/component: mine, azure.workload.identity/use: 'true' }", ""},
	"configFiles":                          {"{ 'a.json': \"{\\\"a\\\": \\\"{{ .b }}\\\"}\\n\", b.txt: '123' }", ""},
	"nodeSelector":                         {"{ gpu: 'true', n: '1' }", ""},
	"tolerations":                          {"[ { key: a, operator: Equal, value: 'true', tolerationSeconds: 1000000, effect: NoExecute } ]", ""},
	"affinity":                             {"{ podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [ { weight: 1, podAffinityTerm: { topologyKey: a } } ] } }", ""},
	"priorityClassName":                    {"'123'", ""},
	"runtimeClassName":                     {"'123'", ""},
}

// given returns YAML that sets the value at a path of keys.
func given(path, value string) string {
	keys := strings.Split(path, ".")
	return strings.Join(keys, ": { ") + ": " + value + strings.Repeat(" }", len(keys)-1)
}

// schemaOf returns values.schema.json.
func schemaOf(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(chartFolder + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var read map[string]any
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// chartValues returns values.yaml.
func chartValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(chartFolder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(text))
}

// leaves returns the paths of all values. A map with an open schema, a probe and server.flags count
// as one value each.
func leaves(t *testing.T, path string, schema, value any) (found []string) {
	t.Helper()
	properties, _ := at(schema, "properties").(map[string]any)
	if at(schema, "additionalProperties") != false || strings.HasPrefix(path, "probes.") || path == "server.flags" {
		return []string{path}
	}
	fields, _ := value.(map[string]any)
	if got, want := slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(fields)); !slices.Equal(slices.DeleteFunc(got, func(key string) bool { return key == "global" }), want) {
		t.Errorf("%s: the schema has %v, and values.yaml %v", path, got, want)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		found = append(found, leaves(t, strings.TrimPrefix(path+"."+key, "."), properties[key], fields[key])...)
	}
	return found
}

// TestEveryValueHasAnEffect renders the chart with an unusual setting of each value. The result
// must be valid and differ from the chart without it, and contain all strings and numbers
// unchanged.
func TestEveryValueHasAnEffect(t *testing.T) {
	check := schemas(t)
	all := leaves(t, "", schemaOf(t), chartValues(t))
	if known := slices.Sorted(maps.Keys(unusual)); !slices.Equal(known, slices.Sorted(slices.Values(all))) {
		t.Errorf("the test knows the values %v, and the chart has %v", known, all)
	}
	without := map[string]string{} // keyed by the other values
	for _, path := range all {
		t.Run(path, func(t *testing.T) {
			of := unusual[path]
			if without[of.with] == "" {
				before, err := render(t, of.with)
				if err != nil {
					t.Fatal(err)
				}
				without[of.with] = text(before)
			}
			objects, err := renderMerged(t, of.with, given(path, of.value))
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				check(t, object)
			}
			if path != "securityContext" { // consistent expects the chart's own security context
				consistent(t, objects)
			}
			if text(objects) == without[of.with] {
				t.Errorf("%s changes nothing of\n%s", given(path, of.value), text(objects))
			}
			var value any
			if err := yaml.Unmarshal([]byte(of.value), &value); err != nil {
				t.Fatal(err)
			}
			for _, want := range scalars(value) {
				if !slices.ContainsFunc(objects, func(o object) bool {
					return slices.ContainsFunc(scalars(o.fields), func(got string) bool { return strings.Contains(got, want) })
				}) {
					t.Errorf("%q is nowhere in\n%s", want, text(objects))
				}
			}
		})
	}
}

// renderMerged renders the chart with one set of values on top of another.
func renderMerged(t *testing.T, first, more string) ([]object, error) {
	t.Helper()
	merged, err := yaml.Marshal(overlaid(values(t, first), values(t, more)))
	if err != nil {
		t.Fatal(err)
	}
	return render(t, string(merged))
}

func overlaid(base, above map[string]any) map[string]any {
	for key, value := range above {
		lower, isMap := base[key].(map[string]any)
		upper, both := value.(map[string]any)
		if isMap && both {
			value = overlaid(lower, upper)
		}
		base[key] = value
	}
	return base
}

// text returns the content of objects as text.
func text(objects []object) string {
	var all strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&all, "---\n%s\n", o.text)
	}
	return all.String()
}

// scalars returns the strings and numbers in a value, as text.
func scalars(value any) (all []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			all = append(all, scalars(field)...)
		}
	case []any:
		for _, entry := range value {
			all = append(all, scalars(entry)...)
		}
	case string:
		all = append(all, value)
	case float64:
		number, _ := json.Marshal(value)
		all = append(all, string(number))
	}
	return all
}

// TestSchemaRefusesNonsense sets each value to each wrong type and adds an unknown key to each map.
// The schema must reject all of them.
func TestSchemaRefusesNonsense(t *testing.T) {
	text, err := os.ReadFile(chartFolder + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ValidateAgainstSingleSchema(chartValues(t), text); err != nil {
		t.Errorf("the chart's own values: %v", err)
	}
	refused := func(given, want string) {
		t.Helper()
		last := want[strings.LastIndexByte(want, '.')+1:]
		if err := chartutil.ValidateAgainstSingleSchema(overlaid(chartValues(t), values(t, given)), text); err == nil || !strings.Contains(err.Error(), last) {
			t.Errorf("%s: got error %v, want it refused by the schema", given, err)
		}
	}
	kinds := map[string]string{"string": "text", "integer": "3", "boolean": "true", "array": "[ 1 ]", "object": "{ a: 1 }", "number": "0.5"}
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		allowed := []any{schema["type"]}
		if several, ok := schema["type"].([]any); ok {
			allowed = several
		}
		if slices.Contains(allowed, any("number")) {
			allowed = append(allowed, "integer")
		}
		for kind, value := range kinds {
			if path != "" && !slices.Contains(allowed, any(kind)) {
				refused(given(path, value), path)
			}
		}
		if properties, ok := schema["properties"].(map[string]any); ok {
			if schema["additionalProperties"] != false {
				t.Errorf("%s has properties, and the schema lets others through", path)
			}
			refused(given(strings.TrimPrefix(path+".misspelt", "."), "1"), "misspelt")
			for key, of := range properties {
				walk(strings.TrimPrefix(path+"."+key, "."), of.(map[string]any))
			}
		}
		if of, ok := schema["items"].(map[string]any); ok {
			for kind, value := range kinds {
				if of["type"] != kind {
					refused(given(path, "[ "+value+" ]"), path)
				}
			}
		}
		if of, ok := schema["additionalProperties"].(map[string]any); ok && of["type"] == "string" {
			refused(given(path, "{ a: 1 }"), path)
		}
	}
	walk("", schemaOf(t))
}
