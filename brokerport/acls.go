package brokerport

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/wire"
)

// There is no authorizer, and so there are no ACLs (spec/admin-api.md §1).

const noAuthorizer = "no authorizer is configured on this broker"

func (l *Listener) describeACLs(r *wire.Request, req *kmsg.DescribeACLsRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = int16(securityDisabled), new(noAuthorizer)
	r.Reply(resp)
}

func (l *Listener) createACLs(r *wire.Request, req *kmsg.CreateACLsRequest) {
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for range req.Creations {
		row := kmsg.NewCreateACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = int16(securityDisabled), new(noAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	r.Reply(resp)
}

func (l *Listener) deleteACLs(r *wire.Request, req *kmsg.DeleteACLsRequest) {
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for range req.Filters {
		row := kmsg.NewDeleteACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = int16(securityDisabled), new(noAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	r.Reply(resp)
}
