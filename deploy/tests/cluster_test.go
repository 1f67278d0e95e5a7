//go:build cluster

package tests

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// namespace is the namespace of all releases. Its pods must meet the "restricted" Pod Security
// Standard.
const namespace = "serving"

// cluster is a local Kubernetes control plane: an API server with etcd, and the controllers. It has
// no nodes.
type cluster struct {
	t          *testing.T
	config     *rest.Config
	kubeconfig string
	client     *kubernetes.Clientset
	objects    *dynamic.DynamicClient
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	warnings   *warnings
}

// warnings collects the warnings of the API server.
type warnings struct {
	lock  sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(code int, _, text string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if code == 299 && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

// taken returns the warnings since the last call.
func (w *warnings) taken() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// startCluster starts the programs that `make cluster` has built, waits for the API server, and
// defines the custom resources.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	tools := os.Getenv("NEREID_CLUSTER")
	if tools == "" {
		t.Skip("NEREID_CLUSTER is not set: make cluster builds the programs of a cluster")
	}
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate, key := selfSigned(t)
	crt, private := write("server.crt", certificate), write("server.key", key)
	tokens := write("tokens.csv", []byte("secret-of-the-test,admin,admin,system:masters\n"))

	store := fmt.Sprintf("http://127.0.0.1:%d", reservePort(t))
	peers := fmt.Sprintf("http://127.0.0.1:%d", reservePort(t))
	start(t, "etcd", filepath.Join(tools, "etcd"), "--data-dir="+filepath.Join(folder, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+store, "--advertise-client-urls="+store, "--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	port := reservePort(t)
	start(t, "kube-apiserver", filepath.Join(tools, "kube-apiserver"), "--etcd-servers="+store, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+folder, "--tls-cert-file="+crt, "--tls-private-key-file="+private, "--token-auth-file="+tokens, "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+crt, "--service-account-signing-key-file="+private,
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none")

	c := &cluster{t: t, warnings: &warnings{}}
	c.kubeconfig = filepath.Join(folder, "kubeconfig")
	written := api.NewConfig()
	written.Clusters["local"] = &api.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port), CertificateAuthority: crt}
	written.AuthInfos["admin"] = &api.AuthInfo{Token: "secret-of-the-test"}
	written.Contexts["local"] = &api.Context{Cluster: "local", AuthInfo: "admin", Namespace: namespace}
	written.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*written, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst, config.WarningHandler = 1000, 1000, c.warnings
	c.config, c.client, c.objects = config, kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	eventually(t, "the API server", func() bool {
		body, err := c.client.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err == nil && string(body) == "ok"
	})
	start(t, "kube-controller-manager", filepath.Join(tools, "kube-controller-manager"), "--kubeconfig="+c.kubeconfig, "--leader-elect=false", "--cert-dir="+folder,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", reservePort(t)), "--service-account-private-key-file="+private, "--horizontal-pod-autoscaler-sync-period=1s",
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		"--controllers=deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller,disruption-controller,endpointslice-controller,serviceaccount-controller,garbage-collector-controller")
	c.define(filepath.Join(tools, "crds"))
	restricted := map[string]string{}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		restricted["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	for _, name := range []string{namespace, "applied"} {
		if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: restricted}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The variants refer to these classes.
	if _, err := c.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia"}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// define creates the custom resource definitions in a folder and waits until the API server serves
// them.
func (c *cluster) define(folder string) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		c.t.Fatalf("%d files in %s, and %v: make cluster fetches the definitions of KEDA, KServe and the Prometheus operator", len(files), folder, err)
	}
	var defined []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			c.t.Fatalf("%s: %v", file, err)
		}
		if _, err := c.apply(definition, "", metav1.ApplyOptions{}); err != nil {
			c.t.Fatalf("%s: %v", file, err)
		}
		defined = append(defined, definition)
	}
	// A definition is established before discovery shows it.
	for _, definition := range defined {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		eventually(c.t, kind, func() bool {
			c.mapper.Reset()
			_, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			return err == nil
		})
	}
	c.warnings.taken()
}

// of returns a client for an object's kind.
func (c *cluster) of(o *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == "root" {
		return c.objects.Resource(mapping.Resource), nil
	}
	return c.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

// apply applies an object with server-side apply, which rejects unknown fields.
func (c *cluster) apply(o *unstructured.Unstructured, namespace string, options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	client, err := c.of(o, namespace)
	if err != nil {
		return nil, err
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return client.Patch(c.t.Context(), o.GetName(), "application/apply-patch+yaml", data, metav1.PatchOptions{FieldManager: "test", FieldValidation: "Strict", DryRun: options.DryRun})
}

// start starts a program and stops it at the end of the test.
func start(t *testing.T, name, program string, arguments ...string) {
	t.Helper()
	var log lockedBuffer
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = command.Wait()
		if t.Failed() {
			text := log.String()
			t.Logf("%s printed\n%s", name, text[max(0, len(text)-20000):])
		}
	})
}

type lockedBuffer struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.String()
}

// selfSigned creates a self-signed certificate for this machine and its key, as PEM.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// all reports whether each text contains one of the parts.
func all(texts []string, parts ...string) bool {
	for _, text := range texts {
		if !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) }) {
			return false
		}
	}
	return true
}
