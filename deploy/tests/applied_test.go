//go:build cluster

package tests

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// unrestricted lists variants whose pods violate the "restricted" Pod Security Standard, with the
// API server's warnings. The containers and volumes from the values cause them, not the chart.
var unrestricted = map[string][]string{
	"nfs":    {`volume "models" uses restricted volume type "nfs"`},
	"bucket": {`container "fetch"`},
	"extras": {`container "s"`, `containers "i", "s"`, `container "i"`},
}

// TestCluster applies all manifests in deploy to a real API server with real controllers.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	t.Run("Applied", func(t *testing.T) { c.in(t).applied() })
	t.Run("KServe", func(t *testing.T) { c.in(t).kserve() })
	t.Run("Upgraded", func(t *testing.T) { c.in(t).upgraded() })
	t.Run("Scaled", func(t *testing.T) { c.in(t).scaled() })
}

// in returns a copy of the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	part := *c
	part.t = t
	return &part
}

// applied applies each variant with server-side apply, as a dry run and for real. It also creates a
// pod from the Deployment's template, as a dry run.
func (c *cluster) applied() {
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		c.t.Run(name, func(t *testing.T) {
			c := c.in(t)
			rendered, err := render(t, variants[name])
			if err != nil {
				t.Fatal(err)
			}
			c.warnings.taken()
			for _, tried := range []bool{true, false} {
				for _, o := range rendered {
					c.applyOne(o.fields, tried)
				}
			}
			template, _, _ := unstructured.NestedMap(find(rendered, "Deployment").fields, "spec", "template")
			template["apiVersion"], template["kind"] = "v1", "Pod"
			text, err := yaml.Marshal(template)
			if err != nil {
				t.Fatal(err)
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(text, &pod); err != nil {
				t.Fatal(err)
			}
			pod.Name = "of-the-template"
			_, err = c.client.CoreV1().Pods("applied").Create(t.Context(), &pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
			expected := unrestricted[name]
			if got := c.warnings.taken(); !all(got, expected...) || len(expected) > 0 && len(got) == 0 {
				t.Errorf("the API server warns: %s\nwant %q", strings.Join(got, "\n"), expected)
			}
			if (err != nil) != (len(expected) > 0) || err != nil && !all([]string{err.Error()}, expected...) {
				t.Errorf("a pod of the template: %v, want %q", err, expected)
			}
			for _, o := range rendered {
				object := &unstructured.Unstructured{Object: o.fields}
				client, err := c.of(object, "applied")
				if err != nil {
					t.Fatal(err)
				}
				background := metav1.DeletePropagationBackground
				if err := client.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// applyOne applies an object in the namespace "applied".
func (c *cluster) applyOne(fields map[string]any, tried bool) {
	c.t.Helper()
	options := metav1.ApplyOptions{}
	if tried {
		options.DryRun = []string{metav1.DryRunAll}
	}
	o := &unstructured.Unstructured{Object: fields}
	if _, err := c.apply(o, "applied", options); err != nil {
		c.t.Errorf("%s %s (tried alone: %t): %v", o.GetKind(), o.GetName(), tried, err)
	}
}

// kserve applies the files in deploy/kserve. Copies with a misspelled field must be rejected.
func (c *cluster) kserve() {
	for _, file := range []string{"clusterservingruntime.yaml", "inferenceservice.yaml"} {
		text, err := os.ReadFile("../kserve/" + file)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, o := range split(c.t, file, text) {
			for _, tried := range []bool{true, false} {
				c.applyOne(o.fields, tried)
			}
			wrong := (&unstructured.Unstructured{Object: o.fields}).DeepCopy()
			wrong.SetName("wrong")
			if err := unstructured.SetNestedField(wrong.Object, "x", "spec", "misspelt"); err != nil {
				c.t.Fatal(err)
			}
			if _, err := c.apply(wrong, "applied", metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}}); err == nil || !strings.Contains(err.Error(), "misspelt") {
				c.t.Errorf("%s with a field that is misspelt: got error %v, want it refused", o.kind, err)
			}
		}
	}
	if got := c.warnings.taken(); len(got) > 0 {
		c.t.Errorf("the API server warns: %q", got)
	}
	// This is the patch for Knative from the documentation.
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		c.t.Fatal(err)
	}
	_, patch, _ := strings.Cut(string(text), "kubectl patch clusterservingruntime kserve-nereid --type=json -p '")
	patch, _, _ = strings.Cut(patch, "'")
	runtimes := c.objects.Resource(schema.GroupVersionResource{Group: "serving.kserve.io", Version: "v1alpha1", Resource: "clusterservingruntimes"})
	patched, err := runtimes.Patch(c.t.Context(), "kserve-nereid", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatalf("%s: %v", patch, err)
	}
	containers, _, _ := unstructured.NestedSlice(patched.Object, "spec", "containers")
	if ports := list(containers)[0]["ports"]; ports != nil {
		c.t.Errorf("the runtime for Knative has the ports %v, want none", ports)
	}
}

// helm returns the configuration of Helm's actions.
func (c *cluster) helm() *action.Configuration {
	c.t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &c.kubeconfig
	flags.Namespace = ptr(namespace)
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS, config.Burst, config.WarningHandler = 1000, 1000, c.warnings
		return config
	}
	configuration := &action.Configuration{}
	if err := configuration.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		c.t.Fatal(err)
	}
	return configuration
}

func ptr[T any](value T) *T { return &value }

// install installs the chart with the values, or upgrades an existing release to them.
func (c *cluster) install(configuration *action.Configuration, release, text string) error {
	c.t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		c.t.Fatal(err)
	}
	if history, err := configuration.Releases.History(release); err == nil && len(history) > 0 {
		upgrade := action.NewUpgrade(configuration)
		upgrade.Namespace, upgrade.MaxHistory = namespace, 2
		upgrade.ResetValues = true // otherwise Helm keeps the previous values
		_, err := upgrade.RunWithContext(c.t.Context(), release, chart, values(c.t, text))
		return err
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = release, namespace
	_, err = install.RunWithContext(c.t.Context(), chart, values(c.t, text))
	return err
}

// upgraded runs `helm upgrade` from the defaults through each variant in turn, and waits until the
// controllers have created or rejected its pods.
func (c *cluster) upgraded() {
	configuration := c.helm()
	for _, name := range append([]string{"default"}, slices.Sorted(maps.Keys(variants))...) {
		c.t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.warnings.taken()
			if err := c.install(configuration, "test", variants[name]); err != nil {
				t.Fatal(err)
			}
			if got := c.warnings.taken(); !all(got, unrestricted[name]...) {
				t.Errorf("the API server warns: %s\nwant %q", strings.Join(got, "\n"), unrestricted[name])
			}
			var failure string
			eventually(t, "the pods of the Deployment", func() bool {
				set := c.current("test-nereid")
				if set == nil {
					return false
				}
				failure = ""
				for _, condition := range set.Status.Conditions {
					if condition.Type == appsv1.ReplicaSetReplicaFailure {
						failure = condition.Message
					}
				}
				return failure != "" || set.Status.Replicas > 0
			})
			if (failure != "") != (len(unrestricted[name]) > 0) || failure != "" && !all([]string{failure}, unrestricted[name]...) {
				t.Errorf("the pods are refused: %s\nwant %q", failure, unrestricted[name])
			}
		})
	}
	if _, err := action.NewUninstall(configuration).Run("test"); err != nil {
		c.t.Fatal(err)
	}
	c.noPods()
}

// current returns a Deployment's current ReplicaSet, or nil if its controller has not created it
// yet.
func (c *cluster) current(deployment string) *appsv1.ReplicaSet {
	c.t.Helper()
	d, err := c.client.AppsV1().Deployments(namespace).Get(c.t.Context(), deployment, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	sets, err := c.client.AppsV1().ReplicaSets(namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, set := range sets.Items {
		template := set.Spec.Template.DeepCopy()
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		if metav1.IsControlledBy(&set, d) && equality.Semantic.DeepEqual(*template, d.Spec.Template) {
			return &set
		}
	}
	return nil
}
