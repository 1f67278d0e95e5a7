// Command autoscale simulates the loop by which Kubernetes decides how many pods serve: requests come, wait in the pods' queues and
// are executed; Prometheus scrapes the pods; a HorizontalPodAutoscaler, made by the chart or by KEDA, compares what was scraped with
// its targets; pods start, drain and end.
//
//	arrivals ─▶ endpoints ─▶ pod: queue ─▶ instances
//	                │          │ scrape
//	            start, drain   ▼
//	                └── HPA ◀─ samples ─▶ KEDA: to zero and back
//
// The parameters are the defaults of deploy/helm/nereid/values.yaml and those of Params. A run has a seed, no clock and no goroutine:
// the same seed gives the same result. Its tests compare the queue with closed forms, the HPA with the formulas of Kubernetes, and
// judge the chart's defaults: they fail when these oscillate under a steady load, or do not scale.
package main
