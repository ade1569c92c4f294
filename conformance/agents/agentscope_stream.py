"""AgentScope's agent on its OpenAI chat model, streamed."""

import asyncio

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit
from task import API_KEY, BASE_URL, MODEL, PROMPT, add, finish, multiply


async def main() -> None:
    """Run the agent on the task."""
    credential = OpenAICredential(api_key=API_KEY, base_url=BASE_URL)
    agent = Agent(
        name="calculator",
        system_prompt="Use the tools.",
        model=OpenAIChatModel(credential=credential, model=MODEL, stream=True),
        toolkit=Toolkit(tools=[FunctionTool(add), FunctionTool(multiply)]),
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
    )
    reply = await agent.reply(UserMsg(name="user", content=PROMPT))
    finish(reply.get_text_content())


asyncio.run(main())
