"""CrewAI: a crew of one agent with one task."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from task import API_KEY, BASE_URL, MODEL, PROMPT, add, finish, multiply

llm = LLM(model=f"openai/{MODEL}", base_url=BASE_URL, api_key=API_KEY)
agent = Agent(
    role="calculator",
    goal="Calculate.",
    backstory="You use tools.",
    tools=[tool("add")(add), tool("multiply")(multiply)],
    llm=llm,
)
task = Task(description=PROMPT, expected_output="A number.", agent=agent)
finish(Crew(agents=[agent], tasks=[task]).kickoff().raw)
