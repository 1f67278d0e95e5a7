//go:build cluster

package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"helm.sh/helm/v3/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// node simulates a kubelet. It runs each pod's command line as a local process, runs its readiness
// probe, reports its state, and sends SIGTERM when the pod is deleted. Only its goroutine uses
// pods.
type node struct {
	c          *cluster
	repository string
	pods       map[types.UID]*running
	started    int
	lock       sync.Mutex // guards addresses
	addresses  map[string]*running
	stop       chan struct{} // closed by end
	ended      chan struct{} // closed by run
}

// running is a pod that the node has started.
type running struct {
	name, ip string
	server   *pod      // for pods of the chart's Deployment
	test     *exec.Cmd // for pods of helm test
	done     chan error
	ready    bool
	ending   bool
}

func (c *cluster) node(repository string) *node {
	n := &node{c: c, repository: repository, pods: map[types.UID]*running{}, addresses: map[string]*running{}, stop: make(chan struct{}), ended: make(chan struct{})}
	go n.run()
	c.t.Cleanup(func() {
		close(n.stop)
		<-n.ended
		for _, r := range n.pods {
			if r.server != nil {
				_ = r.server.cmd.Process.Kill()
				<-r.server.ended
				if c.t.Failed() {
					r.server.lock.Lock()
					c.t.Logf("%s printed\n%s", r.name, r.server.log.String())
					r.server.lock.Unlock()
				}
			}
		}
	})
	return n
}

func (n *node) run() {
	defer close(n.ended)
	for {
		select {
		case <-n.stop:
			return
		case <-time.After(20 * time.Millisecond): // poll the pods
		}
		pods, err := n.c.client.CoreV1().Pods(namespace).List(n.c.t.Context(), metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, p := range pods.Items {
			if err := n.look(&p); err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err) && n.c.t.Context().Err() == nil {
				n.c.t.Errorf("pod %s: %v", p.Name, err)
			}
		}
	}
}

// look moves a pod to its next state.
func (n *node) look(p *corev1.Pod) error {
	client := n.c.client.CoreV1().Pods(namespace)
	r := n.pods[p.UID]
	switch {
	case p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
		return client.Bind(n.c.t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "here"}}, metav1.CreateOptions{})
	case p.Spec.NodeName == "":
		return nil
	case r == nil:
		r, err := n.start(p)
		if err != nil {
			return err
		}
		n.pods[p.UID] = r
		return n.report(p, r, corev1.PodRunning)
	case p.DeletionTimestamp != nil && r.server != nil && !r.ending:
		r.ending = true
		return r.server.cmd.Process.Signal(syscall.SIGTERM)
	}
	ended := r.done
	if r.server != nil {
		ended = r.server.ended
	}
	select {
	case err := <-ended:
		delete(n.pods, p.UID)
		phase := corev1.PodSucceeded
		if err != nil {
			n.c.t.Errorf("pod %s ended with %v, want status 0", p.Name, err)
			phase = corev1.PodFailed
		}
		n.lock.Lock()
		delete(n.addresses, r.ip)
		n.lock.Unlock()
		if p.DeletionTimestamp == nil {
			n.pods[p.UID] = &running{name: p.Name, ip: r.ip, done: make(chan error)}
			return n.report(p, r, phase)
		}
		return client.Delete(n.c.t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	default:
	}
	if r.server == nil {
		if p.DeletionTimestamp != nil && r.test == nil {
			return client.Delete(n.c.t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
		}
		return nil
	}
	if ready := r.server.says(r.server.ports["http-port"], p.Spec.Containers[0].ReadinessProbe.HTTPGet.Path) == http.StatusOK; ready != r.ready {
		r.ready = ready
		return n.report(p, r, corev1.PodRunning)
	}
	return nil
}

// start starts the program of a pod.
func (n *node) start(p *corev1.Pod) (*running, error) {
	n.started++
	r := &running{name: p.Name, ip: fmt.Sprintf("10.1.0.%d", n.started), done: make(chan error, 1)}
	n.lock.Lock()
	defer n.lock.Unlock()
	container := p.Spec.Containers[0]
	if container.Name == "nereid" {
		server, err := launch(container.Args, n.repository)
		if err != nil {
			return nil, err
		}
		r.server = server
		n.addresses[r.ip] = r
		return r, nil
	}
	// The release's test uses the local address instead of the name of the service.
	script := container.Command[len(container.Command)-1]
	for _, server := range n.addresses {
		script = strings.ReplaceAll(script, "http://test-nereid:8000", fmt.Sprintf("http://127.0.0.1:%d", server.server.ports["http-port"]))
	}
	r.test = exec.Command(container.Command[0], append(container.Command[1:len(container.Command)-1:len(container.Command)-1], script)...)
	r.test.Stderr = os.Stderr
	if err := r.test.Start(); err != nil {
		return nil, err
	}
	go func() { r.done <- r.test.Wait() }()
	return r, nil
}

// report reports the state of a pod to the API server.
func (n *node) report(p *corev1.Pod, r *running, phase corev1.PodPhase) error {
	p = p.DeepCopy()
	state := corev1.ConditionFalse
	if r.ready && phase == corev1.PodRunning {
		state = corev1.ConditionTrue
	}
	status := corev1.ContainerStatus{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image, Ready: r.ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}
	if phase != corev1.PodRunning {
		status.Ready, status.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	p.Status = corev1.PodStatus{
		Phase: phase, PodIP: r.ip, PodIPs: []corev1.PodIP{{IP: r.ip}}, StartTime: ptr(metav1.Now()), ContainerStatuses: []corev1.ContainerStatus{status},
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: state}, {Type: corev1.PodReady, Status: state, LastTransitionTime: metav1.Now()}},
	}
	_, err := n.c.client.CoreV1().Pods(namespace).UpdateStatus(n.c.t.Context(), p, metav1.UpdateOptions{})
	return err
}

// at returns the server of the pod with the given IP address.
func (n *node) at(ip string) *pod {
	n.lock.Lock()
	defer n.lock.Unlock()
	if r := n.addresses[ip]; r != nil {
		return r.server
	}
	return nil
}

// pending returns the number of pending requests in /metrics, summed as in the adapter's rule.
func (p *pod) pending() (sum int, err error) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", p.ports["metrics-port"]))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "nv_inference_pending_request_count{") {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += int(value)
		}
	}
	return sum, nil
}

// adapter serves the custom metrics API as the Prometheus adapter does, with values from the
// servers' /metrics.
func (c *cluster) adapter(n *node) {
	const version = "custom.metrics.k8s.io/v1beta2"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var reply any
		switch {
		case r.URL.Path == "/apis/"+version:
			reply = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
				APIResources: []metav1.APIResource{
					{Name: "pods/nv_inference_pending_request_count", Namespaced: true, Kind: "MetricValueList", Verbs: []string{"get"}},
					{Name: "pods/nereid_busy_share", Namespaced: true, Kind: "MetricValueList", Verbs: []string{"get"}},
				}}
		case path.Dir(r.URL.Path) == "/apis/"+version+"/namespaces/"+namespace+"/pods/*":
			pods, err := c.client.CoreV1().Pods(namespace).List(r.Context(), metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			items := []any{}
			for _, p := range pods.Items {
				server := n.at(p.Status.PodIP)
				if server == nil {
					continue
				}
				sum, err := server.pending()
				if path.Base(r.URL.Path) == "nereid_busy_share" {
					sum = 0 // a request counts as busy only after its response, and none ends during the check of the number of pods
				}
				if err == nil {
					items = append(items, map[string]any{"describedObject": map[string]any{"kind": "Pod", "namespace": namespace, "name": p.Name, "apiVersion": "/v1"},
						"metric": map[string]any{"name": path.Base(r.URL.Path)}, "timestamp": metav1.Now(), "value": strconv.Itoa(sum)})
				}
			}
			reply = map[string]any{"kind": "MetricValueList", "apiVersion": version, "metadata": map[string]any{}, "items": items}
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply)
	}))
	c.t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		c.t.Fatal(err)
	}
	port, err := strconv.ParseInt(at.Port(), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, fields := range []map[string]any{
		{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "adapter"}, "spec": map[string]any{"type": "ExternalName", "externalName": "localhost"}},
		{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta2.custom.metrics.k8s.io"}, "spec": map[string]any{
			"service": map[string]any{"name": "adapter", "namespace": "applied", "port": port}, "group": "custom.metrics.k8s.io", "version": "v1beta2",
			"insecureSkipTLSVerify": true, "groupPriorityMinimum": int64(100), "versionPriority": int64(100)}},
	} {
		if _, err := c.apply(&unstructured.Unstructured{Object: fields}, "applied", metav1.ApplyOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// scaled installs the chart with an autoscaler on a node with real servers. It checks that `helm
// test` succeeds, pending requests lead to two more pods, the disruption budget allows one eviction
// at a time, and a rolling update loses no request.
func (c *cluster) scaled() {
	flag := filepath.Join(c.t.TempDir(), "go")
	n := c.node(write(c.t, fmt.Sprintf("while not os.path.exists(%q): time.sleep(0.01)", flag)))
	c.adapter(n)
	if _, err := c.client.CoreV1().Nodes().Create(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	const settings = "autoscaling: { hpa: { enabled: true } }\nserver: { exitDelaySeconds: 3 }\n"
	configuration := c.helm()
	if err := c.install(configuration, "test", settings); err != nil {
		c.t.Fatal(err)
	}
	c.replicas(1)
	if _, err := action.NewReleaseTesting(configuration).Run("test"); err != nil {
		c.t.Errorf("helm test: %v", err)
	}

	// Nine requests wait behind the executing one. At four per pod, they need three pods.
	const asked, grown = 10, 3
	var clients sync.WaitGroup
	first := n.at(c.endpoints()[0])
	for range asked {
		clients.Go(func() {
			if err := first.infer(); err != nil {
				c.t.Error(err)
			}
		})
	}
	c.replicas(grown)
	var scaler *autoscalingv2.HorizontalPodAutoscaler
	eventually(c.t, "what the autoscaler has seen", func() bool {
		var err error
		scaler, err = c.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(c.t.Context(), "test-nereid", metav1.GetOptions{})
		return err == nil && len(scaler.Status.CurrentMetrics) > 0 && scaler.Status.CurrentMetrics[0].Pods != nil && scaler.Status.CurrentMetrics[0].Pods.Current.AverageValue != nil &&
			scaler.Status.CurrentMetrics[0].Pods.Current.AverageValue.AsApproximateFloat64() == float64(asked-1)/grown
	})
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	clients.Wait()

	eventually(c.t, "the disruption budget", func() bool {
		budget, err := c.client.PolicyV1().PodDisruptionBudgets(namespace).Get(c.t.Context(), "test-nereid", metav1.GetOptions{})
		return err == nil && budget.Status.ExpectedPods == grown && budget.Status.CurrentHealthy == grown && budget.Status.DisruptionsAllowed == 1
	})
	pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=nereid"})
	if err != nil || len(pods.Items) != grown {
		c.t.Fatalf("%d pods and %v, want %d", len(pods.Items), err, grown)
	}
	evict := func(name string) error {
		return c.client.PolicyV1().Evictions(namespace).Evict(c.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	}
	if err := evict(pods.Items[0].Name); err != nil {
		c.t.Errorf("the first eviction: %v", err)
	}
	if err := evict(pods.Items[1].Name); !errors.IsTooManyRequests(err) {
		c.t.Errorf("the second eviction: got error %v, want it refused for now", err)
	}
	eventually(c.t, "the end of the pod that was evicted", func() bool {
		_, err := c.client.CoreV1().Pods(namespace).Get(c.t.Context(), pods.Items[0].Name, metav1.GetOptions{})
		return errors.IsNotFound(err)
	})
	c.replicas(grown)

	var served, lost atomic.Int64
	stop := make(chan struct{})
	for i := range 4 {
		clients.Go(func() {
			for turn := i; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				addresses := c.endpoints()
				if len(addresses) == 0 {
					c.t.Error("the service has no endpoint")
					return
				}
				server := n.at(addresses[turn%len(addresses)])
				if server == nil {
					continue // the pod has just ended
				}
				if err := server.infer(); err != nil {
					lost.Add(1)
					c.t.Error(err)
				}
				served.Add(1)
			}
		})
	}
	before := c.endpoints()
	if err := c.install(configuration, "test", settings+"podAnnotations: { changed: 'true' }"); err != nil {
		c.t.Error(err)
	}
	eventually(c.t, "new pods", func() bool {
		now := c.endpoints()
		pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == grown && len(now) == grown && !slices.ContainsFunc(now, func(one string) bool { return slices.Contains(before, one) })
	})
	close(stop)
	clients.Wait()
	c.replicas(grown) // the upgrade leaves the number of pods to the autoscaler
	if served.Load() == 0 || lost.Load() > 0 {
		c.t.Errorf("of %d requests during the rolling update %d were lost", served.Load(), lost.Load())
	}
	if _, err := action.NewUninstall(configuration).Run("test"); err != nil {
		c.t.Error(err)
	}
	c.noPods()
}

// infer sends a request to the model m.
func (p *pod) infer() error {
	body := `{"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}`
	answer, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", p.ports["http-port"]), "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return err
}

// endpoints returns the addresses to which the service would currently route a connection.
func (c *cluster) endpoints() (addresses []string) {
	found, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=test-nereid"})
	if err != nil {
		c.t.Error(err)
		return nil
	}
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				addresses = append(addresses, endpoint.Addresses...)
			}
		}
	}
	return addresses
}

// replicas waits until the Deployment has the given number of pods and the service has as many
// endpoints.
func (c *cluster) replicas(want int) {
	c.t.Helper()
	var status appsv1.DeploymentStatus
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%d pods are wanted, the Deployment has %+v and the service %v", want, status, c.endpoints())
		}
	}()
	eventually(c.t, fmt.Sprintf("%d pods that are ready", want), func() bool {
		d, err := c.client.AppsV1().Deployments(namespace).Get(c.t.Context(), "test-nereid", metav1.GetOptions{})
		if err != nil {
			return false
		}
		status = d.Status
		return d.Spec.Replicas != nil && int(*d.Spec.Replicas) == want && int(status.ReadyReplicas) == want && int(status.Replicas) == want && len(c.endpoints()) == want
	})
}

// noPods waits until all pods are gone.
func (c *cluster) noPods() {
	c.t.Helper()
	eventually(c.t, "the end of all pods", func() bool {
		pods, err := c.client.CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
}
